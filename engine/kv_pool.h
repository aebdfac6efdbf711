// The memory of a worker's KV cache: how many blocks there are, how they lie, and whether peers on
// this host may read it.
//
// Invariant: it has one block more than the cache may have, the last: the scratch block, where
// padded rows write.
//
// A pool that grows and shrinks (kv_cache_max_mib) has the address range of its largest size from
// the beginning, so no pointer into it ever moves; memory comes and goes by block.
//
// Thread safety: Discard belongs to the engine thread, the rest is immutable once made; who writes
// into it is the engine's matter.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/kv_cache_spec.h"
#include "engine/engine_options.h"
#include "kernels/device.h"
#include "kvtransfer/transport.h"
#include "model/llama_config.h"

namespace baton {

class KvPool {
 public:
  KvPool() = default;
  // Settles `kv_cache_mib` and `kv_blocks`, and `transfer_shm` where shared memory cannot be had
  // and FallBackToTcp allows it. InvalidArgument: too many blocks, or a largest size below the
  // first or above the device's memory. ResourceExhausted: no memory. The device outlives the pool.
  static absl::StatusOr<KvPool> Create(const LlamaConfig& config, Device& device,
                                       EngineOptions& options);

  const KvLayout& layout() const { return layout_; }
  // The blocks that the address range has for the cache.
  int32_t max_blocks() const { return static_cast<int32_t>(layout_.num_blocks() - 1); }
  bool resizable() const { return resizable_; }
  // Before the cache grows to blocks [begin, end) more: ResourceExhausted, with both figures, when
  // the device has less memory to give. What is in them stays. Any thread.
  absl::Status Populate(int32_t begin, int32_t end) const;
  // Gives the memory of blocks [begin, end) back. REQUIRES: resizable; nobody reads or writes them.
  // Engine thread.
  void Discard(int32_t begin, int32_t end);
  std::byte* data() const { return memory_->data(); }
  RegisteredPool registered() const {
    return {.base = data(), .layout = layout_, .shared_fd = memory_->shared_fd()};
  }
  // Kind, blocks, bytes and layout, for people.
  std::string Description(const EngineOptions& options) const;
  // Of its address range, how much memory is really there; -1 when the system does not say.
  int64_t ResidentBytes() const;

 private:
  KvPool(const KvLayout& layout, const Device& device, std::unique_ptr<DeviceBuffer> memory,
         bool resizable)
      : layout_(layout), device_(&device), resizable_(resizable), memory_(std::move(memory)) {}
  static absl::StatusOr<KvPool> Reserve(const KvLayout& layout, Device& device,
                                        EngineOptions& options);
  template <typename Do>
  void ForEachRange(int32_t begin, int32_t end, Do do_range) const;

  KvLayout layout_;
  const Device* device_ = nullptr;
  bool resizable_ = false;
  std::unique_ptr<DeviceBuffer> memory_;
};

// Where both ways of transfer were to be open, TCP is enough: turns shared memory off, with a
// warning. False where it was to be the only one.
bool FallBackToTcp(const absl::Status& why, EngineOptions& options);

}  // namespace baton
