// The memory of a worker's KV cache: how many blocks there are, how they lie, and whether peers on
// this host may read it.
//
// Invariant: it has one block more than the cache, the last: the scratch block, where padded rows
// write.
//
// Thread safety: immutable once made; who writes into it is the engine's matter.
#pragma once

#include <cstdint>
#include <memory>

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
  // and FallBackToTcp allows it. InvalidArgument: too many blocks. ResourceExhausted: no memory.
  static absl::StatusOr<KvPool> Create(const LlamaConfig& config, Device& device,
                                       EngineOptions& options);

  const KvLayout& layout() const { return layout_; }
  std::byte* data() const { return memory_->data(); }
  RegisteredPool registered() const {
    return {.base = data(), .layout = layout_, .shared_fd = memory_->shared_fd()};
  }
  // Of its address range, how much memory is really there; -1 when the system does not say.
  int64_t ResidentBytes() const;

 private:
  KvPool(const KvLayout& layout, std::unique_ptr<DeviceBuffer> memory)
      : layout_(layout), memory_(std::move(memory)) {}

  KvLayout layout_;
  std::unique_ptr<DeviceBuffer> memory_;
};

// Where both ways of transfer were to be open, TCP is enough: turns shared memory off, with a
// warning. False where it was to be the only one.
bool FallBackToTcp(const absl::Status& why, EngineOptions& options);

}  // namespace baton
