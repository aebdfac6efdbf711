// Memory of a worker's KV cache: number of blocks per KV group, layout, and whether peers on this
// host may map it.
//
// Invariant: each group has one block more than the cache may use. The last block is the scratch
// block, which padded rows write to.
//
// A resizable pool (kv_cache_max_mib) reserves the address range of its largest size at creation,
// so pointers into it never move. Resizing only adds or returns memory, block by block.
//
// If a tensor-parallel group of GPUs computes the model, each rank's device holds a part of the
// pool: the heads of this rank, of all blocks (model/kv_heads.h). The cache and the transports see
// one pool with the layout of the whole model. Sizes in bytes count all parts.
//
// On a GPU every pool is an address range first. The runner is created with it, takes the memory
// that steps need, and captures its graphs. TakeMemory then gives the pool its share of what is
// left. A part of the device's memory always stays free (GpuReserveBytes).
//
// Thread safety: NewLender and Discard on the engine thread only; lender() is for the transport;
// all else is immutable. The engine decides what is written into the pool.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/block_counts.h"
#include "cache/kv_cache_manager.h"
#include "cache/kv_pool_layout.h"
#include "engine/engine_options.h"
#include "engine/kv_pool_division.h"
#include "engine/resizable_pool.h"
#include "kernels/device.h"
#include "kvtransfer/pool/device_copies.h"
#include "kvtransfer/pool/host_pool.h"
#include "kvtransfer/transfer_pool.h"
#include "model/model_spec.h"

namespace baton {

class KvPool final : public ResizablePool {
 public:
  KvPool() = default;
  // Creates the pool for `model`. Sets `block_size` and, unless the device's memory is yet to be
  // divided, `kv_cache_mib` and `kv_blocks` to the values in effect. Turns `transfer_shm` off if
  // shared memory is not available and FallBackToTcp allows that. InvalidArgument: too many blocks,
  // or kv_cache_max_mib is below the initial size or above the device's memory. ResourceExhausted:
  // not enough memory. The device must outlive the pool.
  static absl::StatusOr<KvPool> Create(const ModelSpec& model, Device& device,
                                       EngineOptions& options) {
    return Create(model, {&device}, options);
  }
  // Same for a pool with a part on each of several GPUs, rank 0 first. `reach_first`: as in
  // DeviceGroup. REQUIRES: their number divides the model's KV heads.
  static absl::StatusOr<KvPool> Create(const ModelSpec& model, std::vector<Device*> devices,
                                       EngineOptions& options, bool reach_first = false);
  // Returns the error that Create would return for these options, except those of memory.
  static absl::Status Check(const ModelSpec& model, const std::vector<Device*>& devices,
                            EngineOptions options);
  // Takes the memory of a pool that only has addresses, and sets `kv_cache_mib` and `kv_blocks`.
  // Call it after everything else that needs device memory was created. Does nothing for a pool
  // that has its memory. Errors: those of Create; ResourceExhausted names both sizes.
  absl::Status TakeMemory(EngineOptions& options);

  const KvPoolLayout& layout() const { return layout_; }
  // Layout of the memory at each of kernel_addresses(): layout(), or one with a rank's heads.
  const KvPoolLayout& memory_layout() const { return memory_layout_; }
  // Before TakeMemory: an upper limit.
  int32_t max_blocks(int32_t group) const override { return most_[group]; }
  BlockCounts BlocksFor(int32_t full) const override { return division_.BlocksFor(full); }
  // Largest number of blocks of group 0 with which all groups fit in `bytes`.
  int64_t BlocksIn(int64_t bytes) const { return division_.MostIn(bytes); }
  // Bytes of all groups when group 0 has `full` blocks.
  int64_t BytesOf(int32_t full) const { return division_.BytesOf(division_.BlocksFor(full)); }
  // Cache options of groups 1, 2, ... when group 0 starts with options.kv_blocks.
  std::vector<WindowPoolOptions> Windows(const EngineOptions& options) const;
  bool resizable() const override { return resizable_; }
  absl::Status Populate(const BlockCounts& blocks) const override;
  void Discard(int32_t group, int32_t begin, int32_t end) override;
  // Start of the pool, for kernels only. No other code may dereference it (tests/tree/tree_test.py
  // lists the files that may call this).
  std::byte* kernel_address() const { return memory_.front()->data(); }
  std::vector<std::byte*> kernel_addresses() const;  // of all parts
  // Access to the pool for transports. Valid as long as the pool's memory.
  TransferPool& lender() const { return *lender_; }
  // Makes another access, for another thread. A pool that the host cannot read gives it staging
  // buffers of its own, which no other process can map. It must not outlive this pool.
  absl::StatusOr<std::unique_ptr<TransferPool>> NewLender(const EngineOptions& options);
  // Describes kind, blocks, bytes and layout, for people.
  std::string Description(const EngineOptions& options) const;
  // Resident bytes of the address range; -1 if the system does not report them.
  int64_t ResidentBytes() const;

 private:
  using Memory = std::vector<std::unique_ptr<DeviceBuffer>>;

  KvPool(const KvPoolLayout& layout, const KvPoolLayout& memory_layout,
         const KvPoolDivision& division, std::vector<Device*> devices, Memory memory,
         const BlockCounts& most, bool resizable)
      : layout_(layout),
        memory_layout_(memory_layout),
        division_(division),
        devices_(std::move(devices)),
        resizable_(resizable),
        most_(most),
        memory_(std::move(memory)),
        lender_(
            std::make_unique<HostPool>(kernel_address(), layout_, memory_.front()->shared_fd())) {}
  static absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes, Device& device,
                                                                EngineOptions& options);
  static absl::StatusOr<std::unique_ptr<DeviceBuffer>> Reserve(int64_t bytes, Device& device,
                                                               EngineOptions& options);
  int64_t parts() const { return static_cast<int64_t>(devices_.size()); }
  bool host_accessible() const { return devices_.front()->host_accessible(); }
  // ResourceExhausted if a device has less memory available than these blocks and the scratch
  // blocks lack.
  absl::Status CheckMemory(const BlockCounts& blocks) const;
  // Bytes of a part's memory that these blocks and the scratch blocks take, in whole granules.
  int64_t MemoryOf(const BlockCounts& blocks) const;
  // Largest number of blocks of group 0, up to `most`, whose part takes at most `bytes`; at
  // least 1.
  int32_t MostInMemory(int64_t bytes, int32_t most) const;
  // Blocks [begin, end) of one group.
  absl::Status PopulateRange(int32_t group, int32_t begin, int32_t end) const;
  absl::Status PopulateScratch() const;
  // Makes a pool of staging buffers. With transfer_shm, processes on this host can map those of
  // blocks to send; turns it off as Create does.
  absl::StatusOr<std::unique_ptr<TransferPool>> LendThroughStaging(EngineOptions& options);
  template <typename Do>
  void ForEachGranuleRange(const BlockCounts& blocks, Do do_range) const;
  template <typename Do>
  void ForEachRange(int32_t group, int32_t begin, int32_t end, Do do_range) const;

  KvPoolLayout layout_ = KvLayout();
  KvPoolLayout memory_layout_ = KvLayout();
  KvPoolDivision division_;
  std::vector<Device*> devices_;
  bool resizable_ = false;
  bool needs_memory_ = false;  // until TakeMemory
  BlockCounts most_;           // max_blocks
  Memory memory_;              // on each device
  // Of one lender; only for memory that the host cannot access.
  struct Staging {
    std::unique_ptr<DeviceBuffer> memory;
    std::unique_ptr<DeviceBuffer> shared;  // read buffers that other processes can map; may be null
    std::unique_ptr<DeviceCopies> copies;
  };
  bool reach_first_ = false;  // as in DeviceGroup
  std::vector<Staging> staging_;
  std::unique_ptr<TransferPool> lender_;  // last member: it uses all of the above
};

// Bytes of a GPU's memory that no pool takes. NCCL and the driver need memory while a worker
// serves, and an allocation that fails in a kernel launch would end the device.
int64_t GpuReserveBytes(int64_t total_bytes);

// Turns shared memory off, with a warning, if TCP is open too. Returns false if shared memory was
// the only way to transfer.
bool FallBackToTcp(const absl::Status& why, EngineOptions& options);

}  // namespace baton
