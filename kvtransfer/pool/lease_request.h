// A lease that is not there yet: asked for until the pool has one, then until it is ready.
//
// Thread safety: belongs to the pool's I/O thread.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "kvtransfer/transfer_pool.h"

namespace baton {

// What a transport waits for. A copy ends within microseconds, so its thread looks again at once. A
// buffer comes when another lease goes, which may be a peer's doing: it looks again now and then.
enum class PoolWait : uint8_t { kNothing, kBuffer, kCopy };
inline constexpr int64_t kBufferRetryUs = 1000;
// A thread that waits for a copy for longer yields between looks. On a busy machine each yield may
// cost far more than a copy.
inline constexpr int64_t kYieldAfterUs = 200;

class LeaseRequest {
 public:
  LeaseRequest(PoolAccess access, LandingParts parts, LayerRange layers)
      : access_(access), parts_(std::move(parts)), layers_(layers) {}

  // Whether the lease is ready to be taken. An error is what its copy came to.
  absl::StatusOr<bool> Ask(TransferPool& pool);
  // REQUIRES: Ask said false.
  PoolWait waits_for() const { return lease_ ? PoolWait::kCopy : PoolWait::kBuffer; }
  // REQUIRES: Ask said true.
  PoolLease Take();

 private:
  PoolAccess access_;
  LandingParts parts_;
  LayerRange layers_;
  std::optional<PoolLease> lease_;
};

}  // namespace baton
