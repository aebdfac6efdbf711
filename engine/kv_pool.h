// The memory of a worker's KV cache: how many blocks each KV group has, how they lie, and whether
// peers on this host may read it.
//
// Invariant: each group has one block more than the cache may have, its last: the scratch block,
// where padded rows write.
//
// A pool that grows and shrinks (kv_cache_max_mib) has the address range of its largest size from
// the beginning, so no pointer into it ever moves; memory comes and goes by block.
//
// Thread safety: Discard belongs to the engine thread, lender() to the transport; the rest is
// immutable once made. The engine decides what is written into it.
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
#include "kvtransfer/pool/host_pool.h"
#include "kvtransfer/transfer_pool.h"
#include "model/model_spec.h"

namespace baton {

class KvPool final : public ResizablePool {
 public:
  KvPool() = default;
  // Settles `kv_cache_mib` and `kv_blocks`, and `transfer_shm` where shared memory cannot be had
  // and FallBackToTcp allows it. InvalidArgument: too many blocks, or a largest size below the
  // first or above the device's memory. ResourceExhausted: no memory. The device outlives the pool.
  static absl::StatusOr<KvPool> Create(const ModelSpec& model, Device& device,
                                       EngineOptions& options);

  const KvPoolLayout& layout() const { return layout_; }
  int32_t max_blocks(int32_t group) const override {
    return static_cast<int32_t>(layout_.group(group).num_blocks() - 1);
  }
  BlockCounts BlocksFor(int32_t full) const override { return division_.BlocksFor(full); }
  // The most blocks of group 0 with which all groups fit in `bytes`.
  int64_t BlocksIn(int64_t bytes) const { return division_.MostIn(bytes); }
  // What the cache is told of groups 1, 2, ..., when group 0 begins with options.kv_blocks.
  std::vector<WindowPoolOptions> Windows(const EngineOptions& options) const;
  bool resizable() const override { return resizable_; }
  absl::Status Populate(const BlockCounts& begin, const BlockCounts& end) const override;
  void Discard(int32_t group, int32_t begin, int32_t end) override;
  // Where the pool begins, for kernels alone: nothing else dereferences it
  // (tests/tree/tree_test.py lists the files that may ask).
  std::byte* kernel_address() const { return memory_->data(); }
  // The pool as transports see it; lives as long as this pool's memory.
  TransferPool& lender() const { return *lender_; }
  // Kind, blocks, bytes and layout, for people.
  std::string Description(const EngineOptions& options) const;
  // Of its address range, how much memory is really there; -1 when the system does not say.
  int64_t ResidentBytes() const;

 private:
  KvPool(const KvPoolLayout& layout, const KvPoolDivision& division, const Device& device,
         std::unique_ptr<DeviceBuffer> memory, bool resizable)
      : layout_(layout),
        division_(division),
        device_(&device),
        resizable_(resizable),
        memory_(std::move(memory)),
        lender_(std::make_unique<HostPool>(memory_->data(), layout_, memory_->shared_fd())) {}
  static absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes, Device& device,
                                                                EngineOptions& options);
  static absl::StatusOr<std::unique_ptr<DeviceBuffer>> Reserve(int64_t bytes, Device& device,
                                                               EngineOptions& options);
  template <typename Do>
  void ForEachRange(int32_t group, int32_t begin, int32_t end, Do do_range) const;

  KvPoolLayout layout_ = KvLayout();
  KvPoolDivision division_;
  const Device* device_ = nullptr;
  bool resizable_ = false;
  std::unique_ptr<DeviceBuffer> memory_;  // host memory: all devices so far are CPUs
  std::unique_ptr<TransferPool> lender_;
};

// Where both ways of transfer were to be open, TCP is enough: turns shared memory off, with a
// warning. False where it was to be the only one.
bool FallBackToTcp(const absl::Status& why, EngineOptions& options);

}  // namespace baton
