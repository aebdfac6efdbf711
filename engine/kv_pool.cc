#include "engine/kv_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "kvtransfer/pool/staged_pool.h"
#include "model/kv_heads.h"

namespace baton {
namespace {

constexpr int64_t kBytesPerMiB = 1 << 20;
constexpr char kPurpose[] = "KV pool";

// Returns the device with the least memory available.
const Device& FullestOf(const std::vector<Device*>& devices) {
  return **std::ranges::min_element(
      devices, {}, [](const Device* device) { return device->Memory().available; });
}

// Bytes that pools may take of one device; -1: unknown.
int64_t SpareBytes(const Device& device) {
  const DeviceMemory memory = device.Memory();
  if (memory.available < 0 || device.host_accessible()) return memory.available;
  return std::max<int64_t>(memory.available - GpuReserveBytes(memory.total), 0);
}

absl::Status TooLittleMemory(const Device& device, int64_t blocks, int64_t bytes,
                             std::string_view more = "") {
  std::string reserve;
  if (!device.host_accessible()) {
    reserve = StrCat(" and keeps ", GpuReserveBytes(device.Memory().total) / kBytesPerMiB,
                     " MiB of them in reserve");
  }
  return absl::ResourceExhaustedError(StrCat(
      blocks, " blocks of KV need ", (bytes + kBytesPerMiB - 1) / kBytesPerMiB, " MiB", more,
      "; the device has ", device.Memory().available / kBytesPerMiB, " MiB available", reserve));
}

// True if the pool takes what the runner leaves of the device's memory.
bool IsDividedLater(const Device& device, const EngineOptions& options) {
  return !device.host_accessible() && options.kv_blocks == 0 && options.kv_cache_mib == 0;
}

// Largest number of blocks of group 0 after growth, for a pool that starts with at least `blocks`.
// A pool that cannot grow has `fixed`.
absl::StatusOr<int64_t> MaxBlocks(const std::vector<Device*>& devices, const EngineOptions& options,
                                  int64_t blocks, int64_t fixed, const KvPoolDivision& division) {
  if (options.kv_cache_max_mib == 0) return fixed;
  int64_t total = 0;
  for (const Device* const device : devices) total += device->Memory().total;
  if (total >= 0 && options.kv_cache_max_mib > total / kBytesPerMiB) {
    return absl::InvalidArgumentError(StrCat("kv-cache-max-mib is ", options.kv_cache_max_mib,
                                             "; the device has ", total / kBytesPerMiB,
                                             " MiB of memory"));
  }
  const int64_t most = division.MostIn(options.kv_cache_max_mib * kBytesPerMiB);
  if (most < blocks) {
    return absl::InvalidArgumentError(StrCat("kv-cache-max-mib ", options.kv_cache_max_mib,
                                             " holds ", most, " blocks; the pool starts with ",
                                             blocks));
  }
  return most;
}

absl::StatusOr<KvPoolDivision> DivisionOf(const KvCacheSpec& spec, const EngineOptions& options) {
  const std::vector<int64_t> one_each(spec.groups.size(), 1);
  ASSIGN_OR_RETURN(const KvPoolLayout one,
                   KvPoolLayout::Create(spec, options.layout, options.block_size, one_each));
  std::vector<int64_t> bytes_per_block;
  for (int32_t at = 0; at < one.groups(); ++at) {
    bytes_per_block.push_back(one.group(at).bytes_per_block());
  }
  return KvPoolDivision(spec, std::move(bytes_per_block), options);
}

// Sizes of a pool that has no memory yet.
struct PoolPlan {
  KvPoolDivision division;
  BlockCounts counts;
  KvPoolLayout layout;
  KvPoolLayout memory_layout;
};

// Sets the options that KvPool::Create sets. Errors: those of KvPool::Create, except those of
// memory.
absl::StatusOr<PoolPlan> Plan(const ModelSpec& model, const std::vector<Device*>& devices,
                              EngineOptions& options) {
  Device& device = *devices.front();
  const auto parts = static_cast<int32_t>(devices.size());
  SettleForDevice(options, device);
  const KvCacheSpec spec = model.KvOfType(options.kv_type);
  ASSIGN_OR_RETURN(const KvPoolDivision division, DivisionOf(spec, options));
  const bool divided_later = IsDividedLater(device, options);
  int64_t blocks = options.kv_blocks;
  if (divided_later) {
    // Addresses for all memory that the pool could get.
    blocks = std::clamp<int64_t>(division.MostIn(FullestOf(devices).Memory().available * parts), 1,
                                 kMaxKvBlocks);
  } else if (blocks == 0) {
    if (options.kv_cache_mib == 0) {
      options.kv_cache_mib = DefaultKvCacheMiB(device.Memory().available);
    }
    blocks = std::max<int64_t>(1, division.MostIn(options.kv_cache_mib * kBytesPerMiB));
  }
  ASSIGN_OR_RETURN(const int64_t most,
                   MaxBlocks(devices, options, divided_later ? 1 : blocks, blocks, division));
  if (most > kMaxKvBlocks) {
    return absl::InvalidArgumentError(
        StrCat("the KV pool would have ", most, " blocks; the limit is ", kMaxKvBlocks));
  }
  if (!divided_later) options.kv_blocks = static_cast<int32_t>(blocks);
  const BlockCounts counts = division.BlocksFor(static_cast<int32_t>(most));
  std::vector<int64_t> num_blocks;
  for (size_t at = 0; at < spec.groups.size(); ++at) {
    num_blocks.push_back(int64_t{counts[static_cast<int32_t>(at)]} + 1);
  }
  ASSIGN_OR_RETURN(const KvPoolLayout layout,
                   KvPoolLayout::Create(spec, options.layout, options.block_size, num_blocks));
  ASSIGN_OR_RETURN(
      const KvPoolLayout memory_layout,
      KvPoolLayout::Create(OfOneRank(spec, parts), options.layout, options.block_size, num_blocks));
  return PoolPlan{division, counts, layout, memory_layout};
}

}  // namespace

absl::Status KvPool::Check(const ModelSpec& model, const std::vector<Device*>& devices,
                           EngineOptions options) {
  return Plan(model, devices, options).status();
}

absl::StatusOr<KvPool> KvPool::Create(const ModelSpec& model, std::vector<Device*> devices,
                                      EngineOptions& options, bool reach_first) {
  Device& device = *devices.front();
  CHECK(devices.size() == 1 || !device.host_accessible());
  ASSIGN_OR_RETURN(const PoolPlan plan, Plan(model, devices, options));
  const auto& [division, counts, layout, memory_layout] = plan;
  const bool resizable = options.kv_cache_max_mib > 0;
  const bool only_addresses = resizable || !device.host_accessible();
  Memory memory;
  if (only_addresses) {
    for (Device* const of_part : devices) {
      ASSIGN_OR_RETURN(memory.emplace_back(),
                       Reserve(memory_layout.pool_bytes(), *of_part, options));
    }
  } else {
    const int64_t spare = SpareBytes(device);
    if (spare >= 0 && layout.pool_bytes() > spare) {
      return TooLittleMemory(device, layout.total_blocks(), layout.pool_bytes());
    }
    ASSIGN_OR_RETURN(memory.emplace_back(), Allocate(layout.pool_bytes(), device, options));
  }
  KvPool pool(layout, memory_layout, division, std::move(devices), std::move(memory), counts,
              resizable);
  pool.needs_memory_ = only_addresses;
  pool.reach_first_ = reach_first;
  if (options.lend_pool) {
    ASSIGN_OR_RETURN(pool.lender_, pool.NewLender(options));
  } else if (!device.host_accessible()) {
    ASSIGN_OR_RETURN(pool.lender_, pool.LendThroughStaging(options));
  }
  if (device.host_accessible()) RETURN_IF_ERROR(pool.TakeMemory(options));
  return pool;
}

absl::Status KvPool::TakeMemory(EngineOptions& options) {
  if (!needs_memory_) return absl::OkStatus();
  if (IsDividedLater(*devices_.front(), options)) {
    const Device& fullest = FullestOf(devices_);
    const int64_t share = DefaultGpuKvCacheMiB(fullest.Memory().available) * kBytesPerMiB;
    options.kv_blocks = MostInMemory(std::min(share, SpareBytes(fullest)), most_.full());
    options.kv_cache_mib =
        (MemoryOf(BlocksFor(options.kv_blocks)) * parts() + kBytesPerMiB - 1) / kBytesPerMiB;
  }
  const BlockCounts blocks = BlocksFor(options.kv_blocks);
  RETURN_IF_ERROR(CheckMemory(blocks));
  RETURN_IF_ERROR(PopulateScratch());
  needs_memory_ = false;
  RETURN_IF_ERROR(Populate(blocks));
  if (!resizable_) most_ = blocks;
  return absl::OkStatus();
}

// Calls do_range(offset, bytes) for disjoint ranges of whole granules, which hold these blocks and
// the scratch blocks.
template <typename Do>
void KvPool::ForEachGranuleRange(const BlockCounts& blocks, Do do_range) const {
  const auto granule = static_cast<int64_t>(memory_.front()->granularity());
  std::vector<std::pair<int64_t, int64_t>> ranges;  // in granules, with their ends
  const auto add = [&](int64_t offset, int64_t bytes) {
    ranges.emplace_back(offset / granule, (offset + bytes + granule - 1) / granule);
  };
  for (int32_t at = 0; at < layout_.groups(); ++at) {
    const auto scratch = static_cast<int32_t>(layout_.group(at).num_blocks() - 1);
    ForEachRange(at, 0, blocks[at], add);
    ForEachRange(at, scratch, scratch + 1, add);
  }
  std::ranges::sort(ranges);
  int64_t end = 0;  // of the granules that were passed so far
  for (const auto& range : ranges) {
    const int64_t begin = std::max(range.first, end);
    if (begin >= range.second) continue;
    end = range.second;
    do_range(begin * granule, (end - begin) * granule);
  }
}

int64_t KvPool::MemoryOf(const BlockCounts& blocks) const {
  int64_t memory = 0;
  ForEachGranuleRange(blocks, [&](int64_t, int64_t bytes) { memory += bytes; });
  return memory;
}

int32_t KvPool::MostInMemory(int64_t bytes, int32_t most) const {
  int32_t least = 1;
  while (least < most) {
    const int32_t middle = least + (most - least + 1) / 2;
    if (MemoryOf(BlocksFor(middle)) <= bytes) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  return least;
}

absl::Status KvPool::CheckMemory(const BlockCounts& blocks) const {
  for (size_t part = 0; part < memory_.size(); ++part) {
    const DeviceBuffer& memory = *memory_[part];
    int64_t bytes = 0;
    ForEachGranuleRange(blocks, [&](int64_t offset, int64_t size) {
      const auto begin = static_cast<size_t>(offset);
      bytes += static_cast<int64_t>(
          memory.MissingMemory(begin, std::min(static_cast<size_t>(size), memory.size() - begin)));
    });
    const int64_t spare = SpareBytes(*devices_[part]);
    if (bytes == 0 || spare < 0 || bytes <= spare) continue;
    int64_t count = 0;
    for (int32_t at = 0; at < layout_.groups(); ++at) count += blocks[at];
    return TooLittleMemory(*devices_[part], count, bytes, needs_memory_ ? "" : " more");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TransferPool>> KvPool::NewLender(const EngineOptions& options) {
  if (options.lend_pool) return options.lend_pool(kernel_address(), layout_);
  if (!host_accessible()) {
    EngineOptions alone = options;
    alone.transfer_shm = false;
    return LendThroughStaging(alone);
  }
  return std::make_unique<HostPool>(kernel_address(), layout_, memory_.front()->shared_fd());
}

absl::StatusOr<std::unique_ptr<TransferPool>> KvPool::LendThroughStaging(EngineOptions& options) {
  constexpr char kBuffers[] = "staging buffers of transfers";
  Device& device = *devices_.front();
  StagedPool::Limits limits;
  SharedStaging shared;
  Staging of_lender;
  if (options.transfer_shm) {
    const StagedPool::Limits of_shared{.read_buffers = StagedPool::SharedReadBuffers(layout_)};
    const int64_t size = StagedPool::SharedLayout(layout_, of_shared).pool_bytes();
    absl::StatusOr<std::unique_ptr<DeviceBuffer>> buffers =
        device.AllocateSharedStaging(static_cast<size_t>(size), kBuffers);
    if (buffers.ok()) {
      limits = of_shared;
      of_lender.shared = *std::move(buffers);
      shared = {.memory = {of_lender.shared->data(), of_lender.shared->size()},
                .file = of_lender.shared->shared_fd()};
    } else if (!FallBackToTcp(buffers.status(), options)) {
      return buffers.status();
    }
  }
  const auto bytes =
      static_cast<size_t>(StagedPool::StagingBytes(layout_, limits, of_lender.shared != nullptr));
  ASSIGN_OR_RETURN(of_lender.memory, device.AllocateStaging(bytes, kBuffers));
  std::vector<DeviceCopies::Part> parts;
  for (size_t part = 0; part < memory_.size(); ++part) {
    parts.push_back({.device = devices_[part], .pool = memory_[part]->data()});
  }
  of_lender.copies = std::make_unique<DeviceCopies>(parts, reach_first_);
  RETURN_IF_ERROR(of_lender.copies->Prepare());
  const Staging& kept = staging_.emplace_back(std::move(of_lender));
  const std::span staging(kept.memory->data(), kept.memory->size());
  if (parts.size() == 1) {
    return std::make_unique<StagedPool>(kernel_address(), layout_, *kept.copies, staging, limits,
                                        shared);
  }
  return std::make_unique<StagedPool>(memory_layout_, layout_, *kept.copies, staging, limits,
                                      shared);
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> KvPool::Allocate(int64_t bytes, Device& device,
                                                               EngineOptions& options) {
  const auto size = static_cast<size_t>(bytes);
  if (options.transfer_shm && device.host_accessible()) {
    absl::StatusOr<std::unique_ptr<DeviceBuffer>> shared = device.AllocateShared(size, kPurpose);
    if (shared.ok() || !FallBackToTcp(shared.status(), options)) return shared;
  }
  return device.Allocate(size, kPurpose);
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> KvPool::Reserve(int64_t bytes, Device& device,
                                                              EngineOptions& options) {
  const auto size = static_cast<size_t>(bytes);
  const bool shared = options.transfer_shm && device.host_accessible();
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> memory = device.Reserve(size, kPurpose, shared);
  if (!memory.ok() && shared && FallBackToTcp(memory.status(), options)) {
    memory = device.Reserve(size, kPurpose, /*shared=*/false);
  }
  return memory;
}

// Calls do_range(offset, bytes) for each memory range of blocks [begin, end) of the group, in each
// part of the pool.
template <typename Do>
void KvPool::ForEachRange(int32_t at, int32_t begin, int32_t end, Do do_range) const {
  if (begin == end) return;
  const KvLayout& group = memory_layout_.group(at);
  const int64_t offset = memory_layout_.offset(at);
  if (group.kind() == KvLayoutKind::kBlockMajor) {
    const int64_t stride = group.bytes_per_block();
    do_range(offset + begin * stride, (end - begin) * stride);
    return;
  }
  for (int32_t layer = 0; layer < group.group().layers; ++layer) {
    for (int32_t plane = 0; plane < group.planes(); ++plane) {
      do_range(offset + group.PieceOffset(layer, plane, begin),
               (end - begin) * group.piece_bytes(plane));
    }
  }
}

absl::Status KvPool::Populate(const BlockCounts& blocks) const {
  RETURN_IF_ERROR(CheckMemory(blocks));
  for (int32_t group = 0; group < layout_.groups(); ++group) {
    RETURN_IF_ERROR(PopulateRange(group, 0, blocks[group]));
  }
  return absl::OkStatus();
}

// The scratch block of a group is its last one. Resizing never includes it.
absl::Status KvPool::PopulateScratch() const {
  for (int32_t group = 0; group < layout_.groups(); ++group) {
    const auto scratch = static_cast<int32_t>(layout_.group(group).num_blocks() - 1);
    RETURN_IF_ERROR(PopulateRange(group, scratch, scratch + 1));
  }
  return absl::OkStatus();
}

absl::Status KvPool::PopulateRange(int32_t group, int32_t begin, int32_t end) const {
  absl::Status populated;
  ForEachRange(group, begin, end, [&](int64_t offset, int64_t size) {
    for (const auto& memory : memory_) {
      if (!populated.ok()) return;
      populated = memory->Populate(static_cast<size_t>(offset), static_cast<size_t>(size));
    }
  });
  return populated;
}

void KvPool::Discard(int32_t group, int32_t begin, int32_t end) {
  ForEachRange(group, begin, end, [&](int64_t offset, int64_t size) {
    for (const auto& memory : memory_) {
      memory->Discard(static_cast<size_t>(offset), static_cast<size_t>(size));
    }
  });
}

std::vector<WindowPoolOptions> KvPool::Windows(const EngineOptions& options) const {
  const BlockCounts blocks = BlocksFor(options.kv_blocks);
  std::vector<WindowPoolOptions> windows;
  for (int32_t at = 1; at < layout_.groups(); ++at) {
    windows.push_back({.window = layout_.group(at).group().window,
                       .num_blocks = blocks[at],
                       .max_blocks = max_blocks(at)});
  }
  return windows;
}

std::vector<std::byte*> KvPool::kernel_addresses() const {
  std::vector<std::byte*> addresses;
  for (const auto& memory : memory_) addresses.push_back(memory->data());
  return addresses;
}

std::string KvPool::Description(const EngineOptions& options) const {
  const int64_t bytes_per_block = layout_.group(0).bytes_per_block();
  std::string windows;
  const BlockCounts blocks = BlocksFor(options.kv_blocks);
  for (int32_t at = 1; at < layout_.groups(); ++at) {
    const KvLayout& group = layout_.group(at);
    windows += absl::StrFormat("; window %d: %d blocks, %d bytes a block", group.group().window,
                               blocks[at], group.bytes_per_block());
  }
  return absl::StrFormat(
      "%s, %d blocks of %d tokens = %d tokens, %d bytes a block, %d MiB reserved%s%s, %s, %s%s",
      options.paged ? "paged" : "contiguous", options.kv_blocks, options.block_size,
      int64_t{options.kv_blocks} * options.block_size, bytes_per_block,
      (resizable_ || host_accessible() ? memory_layout_.pool_bytes() : MemoryOf(blocks)) * parts() /
          kBytesPerMiB,
      parts() > 1 ? StrCat(" on ", parts(), " devices") : std::string(),
      resizable_ ? StrCat(" to grow to ", max_blocks(0), " blocks") : std::string(),
      std::string(KvTypeName(options.kv_type)), std::string(KvLayoutKindName(options.layout)),
      windows);
}

int64_t KvPool::ResidentBytes() const {
  if (!host_accessible()) return -1;
  const int64_t page = sysconf(_SC_PAGESIZE);
  const size_t size = memory_.front()->size();
  std::vector<unsigned char> pages((size + page - 1) / page);
  if (mincore(kernel_address(), size, pages.data()) != 0) return -1;
  return std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; }) *
         page;
}

int64_t GpuReserveBytes(int64_t total_bytes) { return total_bytes / 64; }

bool FallBackToTcp(const absl::Status& why, EngineOptions& options) {
  if (options.transfer_listen.empty()) return false;
  LOG(WARNING) << "no shared memory for transfers, using TCP only: " << why.message();
  options.transfer_shm = false;
  return true;
}

}  // namespace baton
