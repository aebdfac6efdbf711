// Whether a loop that works still comes on: it says so at each turn and between two operations of a
// step. One that hangs in an operation (a lost thread, a device that does not come back) answers
// nothing itself; whoever asks here sees it.
//
// Thread safety: Beat and Rest from the loop; Check from any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "common/clock.h"

namespace baton {

class LoopPulse {
 public:
  // `clock` must outlive this. `longest_us`: that anything between two beats may take.
  LoopPulse(const Clock* clock, int64_t longest_us) : clock_(clock), longest_us_(longest_us) {}

  void Beat() { beat_us_.store(clock_->NowUs(), std::memory_order_relaxed); }
  // Nothing to do until the next beat.
  void Rest() { beat_us_.store(kResting, std::memory_order_relaxed); }
  // Unavailable when the last beat was too long ago, with both times.
  absl::Status Check() const;

 private:
  static constexpr int64_t kResting = -1;

  const Clock* const clock_;
  const int64_t longest_us_;
  std::atomic<int64_t> beat_us_{kResting};
};

}  // namespace baton
