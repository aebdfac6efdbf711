#include "engine/kv_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

constexpr int64_t kMiB = 1 << 20;

// Whether so many blocks more can be had at all.
absl::Status CheckMemory(const Device& device, int64_t blocks, int64_t bytes_per_block) {
  const int64_t available = device.Memory().available;
  if (available < 0 || blocks <= available / bytes_per_block) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      StrCat(blocks, " blocks of KV need ", blocks * bytes_per_block / kMiB,
             " MiB, the device has ", available / kMiB, " MiB available"));
}

// The largest number of blocks that the pool may come to have.
absl::StatusOr<int64_t> MaxBlocks(const Device& device, const EngineOptions& options,
                                  int64_t blocks, int64_t bytes_per_block) {
  if (options.kv_cache_max_mib == 0) return blocks;
  const int64_t total = device.Memory().total;
  if (total >= 0 && options.kv_cache_max_mib > total / kMiB) {
    return absl::InvalidArgumentError(StrCat("kv-cache-max-mib is ", options.kv_cache_max_mib,
                                             ", the device has ", total / kMiB, " MiB of memory"));
  }
  const int64_t most = options.kv_cache_max_mib * kMiB / bytes_per_block;
  if (most < blocks) {
    return absl::InvalidArgumentError(StrCat("kv-cache-max-mib ", options.kv_cache_max_mib, " is ",
                                             most, " blocks, the pool begins with ", blocks));
  }
  return most;
}

}  // namespace

absl::StatusOr<KvPool> KvPool::Create(const LlamaConfig& config, Device& device,
                                      EngineOptions& options) {
  const KvGroupSpec group{.layers = config.layers,
                          .kv_heads = config.kv_heads,
                          .head_dim = config.head_dim,
                          .type = options.kv_type};
  const auto layout_of = [&](int64_t blocks) {
    return KvLayout::Create(group, options.layout, options.block_size, blocks);
  };
  ASSIGN_OR_RETURN(const KvLayout one, layout_of(1));
  int64_t blocks = options.kv_blocks;
  if (blocks == 0) {
    if (options.kv_cache_mib == 0)
      options.kv_cache_mib = DefaultKvCacheMiB(device.Memory().available);
    blocks = std::max<int64_t>(1, options.kv_cache_mib * kMiB / one.bytes_per_block());
  }
  ASSIGN_OR_RETURN(const int64_t most, MaxBlocks(device, options, blocks, one.bytes_per_block()));
  if (most > kMaxKvBlocks) {
    return absl::InvalidArgumentError(
        StrCat("the KV pool would have ", most, " blocks, at most ", kMaxKvBlocks));
  }
  options.kv_blocks = static_cast<int32_t>(blocks);
  ASSIGN_OR_RETURN(const KvLayout layout, layout_of(most + 1));
  if (options.kv_cache_max_mib > 0) return Reserve(layout, device, options);
  RETURN_IF_ERROR(CheckMemory(device, most + 1, one.bytes_per_block()));
  const auto bytes = static_cast<size_t>(layout.pool_bytes());
  if (options.transfer_shm) {
    absl::StatusOr<std::unique_ptr<DeviceBuffer>> shared = device.AllocateShared(bytes, "KV pool");
    if (shared.ok()) return KvPool(layout, device, *std::move(shared), /*resizable=*/false);
    if (!FallBackToTcp(shared.status(), options)) return shared.status();
  }
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> memory, device.Allocate(bytes, "KV pool"));
  return KvPool(layout, device, std::move(memory), /*resizable=*/false);
}

absl::StatusOr<KvPool> KvPool::Reserve(const KvLayout& layout, Device& device,
                                       EngineOptions& options) {
  const auto bytes = static_cast<size_t>(layout.pool_bytes());
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> memory =
      device.Reserve(bytes, "KV pool", options.transfer_shm);
  if (!memory.ok() && options.transfer_shm && FallBackToTcp(memory.status(), options)) {
    memory = device.Reserve(bytes, "KV pool", /*shared=*/false);
  }
  RETURN_IF_ERROR(memory.status());
  KvPool pool(layout, device, *std::move(memory), /*resizable=*/true);
  RETURN_IF_ERROR(pool.Populate(0, options.kv_blocks));
  return pool;
}

// Calls do_range(offset, bytes) for what blocks [begin, end) are in memory.
template <typename Do>
void KvPool::ForEachRange(int32_t begin, int32_t end, Do do_range) const {
  if (layout_.kind() == KvLayoutKind::kBlockMajor) {
    const int64_t stride = layout_.bytes_per_block();
    do_range(begin * stride, (end - begin) * stride);
    return;
  }
  for (int32_t layer = 0; layer < layout_.group().layers; ++layer) {
    for (const bool value : {false, true}) {
      do_range(layout_.PieceOffset(layer, value, begin), (end - begin) * layout_.piece_bytes());
    }
  }
}

absl::Status KvPool::Populate(int32_t begin, int32_t end) const {
  RETURN_IF_ERROR(CheckMemory(*device_, end - begin, layout_.bytes_per_block()));
  ForEachRange(begin, end, [&](int64_t offset, int64_t size) {
    memory_->Populate(static_cast<size_t>(offset), static_cast<size_t>(size));
  });
  return absl::OkStatus();
}

void KvPool::Discard(int32_t begin, int32_t end) {
  ForEachRange(begin, end, [&](int64_t offset, int64_t size) {
    memory_->Discard(static_cast<size_t>(offset), static_cast<size_t>(size));
  });
}

std::string KvPool::Description(const EngineOptions& options) const {
  return absl::StrFormat(
      "%s, %d blocks of %d tokens = %d tokens, %d bytes a block, %d MiB reserved%s, %s, %s",
      options.paged ? "paged" : "contiguous", options.kv_blocks, options.block_size,
      int64_t{options.kv_blocks} * options.block_size, layout_.bytes_per_block(),
      layout_.pool_bytes() / kMiB,
      resizable_ ? StrCat(" to grow to ", max_blocks(), " blocks") : std::string(),
      std::string(KvTypeName(options.kv_type)), std::string(KvLayoutKindName(options.layout)));
}

int64_t KvPool::ResidentBytes() const {
  const int64_t page = sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> pages((memory_->size() + page - 1) / page);
  if (mincore(data(), memory_->size(), pages.data()) != 0) return -1;
  return std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; }) *
         page;
}

bool FallBackToTcp(const absl::Status& why, EngineOptions& options) {
  if (options.transfer_listen.empty()) return false;
  LOG(WARNING) << "no shared memory for transfers, TCP alone: " << why.message();
  options.transfer_shm = false;
  return true;
}

}  // namespace baton
