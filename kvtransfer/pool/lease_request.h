// Polls a pool for a lease: first until the pool has a lease to give, then until the lease is
// ready.
//
// Thread safety: belongs to the pool's I/O thread.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "kvtransfer/transfer_pool.h"

namespace baton {

// What a request waits for:
//  - kCopy: a copy ends within microseconds. The I/O thread polls again at once.
//  - kBuffer: a staging buffer becomes free when another lease is released, which may depend on a
//    peer. The I/O thread polls every `kBufferRetryUs`.
enum class PoolWait : uint8_t { kNothing, kBuffer, kCopy };
inline constexpr int64_t kBufferRetryUs = 1000;
// A thread that has waited longer than this for a copy yields between two polls. It does not yield
// earlier, because on a busy machine one yield may cost far more than a copy.
inline constexpr int64_t kYieldAfterUs = 200;

class LeaseRequest {
 public:
  LeaseRequest(PoolAccess access, LandingParts parts, LayerRange layers)
      : access_(access), parts_(std::move(parts)), layers_(layers) {}

  // Returns true when the pool has given a lease, so that its copy, if any, has begun.
  bool Begin(TransferPool& pool);
  // Returns true when the lease is ready to be taken. An error means that its copy failed.
  absl::StatusOr<bool> Ask(TransferPool& pool);
  // REQUIRES: the last Ask() or Begin() left something to wait for.
  PoolWait waits_for() const { return lease_ ? PoolWait::kCopy : PoolWait::kBuffer; }
  // REQUIRES: the last Ask() returned true.
  PoolLease Take();

 private:
  PoolAccess access_;
  LandingParts parts_;
  LayerRange layers_;
  std::optional<PoolLease> lease_;
};

}  // namespace baton
