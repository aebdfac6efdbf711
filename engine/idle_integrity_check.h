// Recounts a worker's blocks once it has become idle: a count that is off is a bug, which is told
// (log, status) and answered with no new work, before it gives a block to two users.
//
// A recount looks at every block and node, so there is one only after work, and at most one in
// kIntervalUs. The first error is final: what was lost does not come back.
//
// Thread safety: Worked and OnIdle belong to the engine thread; error() may be asked from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "common/clock.h"

namespace baton {

class IdleIntegrityCheck {
 public:
  static constexpr int64_t kIntervalUs = 5'000'000;

  // `check` says what is wrong, with the numbers. `clock` outlives this.
  IdleIntegrityCheck(std::function<absl::Status()> check, const Clock* clock)
      : check_(std::move(check)), clock_(clock) {}

  void Worked() { worked_ = true; }
  void OnIdle();
  // Unavailable, with what the recount found: the reason to refuse work. OK while all is well.
  absl::Status error() const {
    return failed_.load(std::memory_order_acquire) ? error_ : absl::OkStatus();
  }

 private:
  const std::function<absl::Status()> check_;
  const Clock* const clock_;
  bool worked_ = false;
  int64_t next_us_ = std::numeric_limits<int64_t>::min();
  absl::Status error_;  // written once, before failed_
  std::atomic<bool> failed_ = false;
};

}  // namespace baton
