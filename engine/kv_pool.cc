#include "engine/kv_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kMaxBlocks = int64_t{1} << 30;

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
  int64_t blocks = options.kv_blocks;
  if (blocks == 0) {
    if (options.kv_cache_mib == 0) options.kv_cache_mib = DefaultKvCacheMiB();
    ASSIGN_OR_RETURN(const KvLayout one, layout_of(1));
    blocks = std::max<int64_t>(1, options.kv_cache_mib * kMiB / one.bytes_per_block());
  }
  if (blocks > kMaxBlocks) {
    return absl::InvalidArgumentError(
        StrCat("the KV pool would have ", blocks, " blocks, at most ", kMaxBlocks));
  }
  options.kv_blocks = static_cast<int32_t>(blocks);
  ASSIGN_OR_RETURN(const KvLayout layout, layout_of(blocks + 1));
  const auto bytes = static_cast<size_t>(layout.pool_bytes());
  if (options.transfer_shm) {
    absl::StatusOr<std::unique_ptr<DeviceBuffer>> shared = device.AllocateShared(bytes, "KV pool");
    if (shared.ok()) return KvPool(layout, *std::move(shared));
    if (!FallBackToTcp(shared.status(), options)) return shared.status();
  }
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> memory, device.Allocate(bytes, "KV pool"));
  return KvPool(layout, std::move(memory));
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
