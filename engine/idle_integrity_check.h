// Integrity check of a worker's block accounting, run when the worker becomes idle. A wrong count
// is a bug that could give one block to two users. The check reports it in log and status, and the
// worker then refuses all new work.
//
// A check looks at every block and tree node. So it runs only after work, and at most once per
// kIntervalUs. The first error is final, because a lost block does not come back.
//
// Thread safety: Worked and OnIdle on the engine thread only; error() on any thread.
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

  // `check` returns an error with the numbers if a count is wrong. `clock` must outlive this.
  IdleIntegrityCheck(std::function<absl::Status()> check, const Clock* clock)
      : check_(std::move(check)), clock_(clock) {}

  void Worked() { worked_ = true; }
  void OnIdle();
  // Returns Unavailable with the error that was found, the reason to refuse work. OK if no error
  // was found.
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
