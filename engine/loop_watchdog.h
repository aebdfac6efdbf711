// Whether a loop that works still comes on: it says so at each turn and between two operations of a
// step. One that hangs in an operation (a lost thread, a device that does not come back) answers
// nothing itself; whoever asks here sees it.
//
// Thread safety: Feed and Disarm from the loop; Check from any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "common/clock.h"

namespace baton {

class LoopWatchdog {
 public:
  // `clock` must outlive this. `longest_us`: that anything between two calls of Feed may take.
  LoopWatchdog(const Clock* clock, int64_t longest_us) : clock_(clock), longest_us_(longest_us) {}

  void Feed() { fed_us_.store(clock_->NowUs(), std::memory_order_relaxed); }
  // Nothing to do until the next Feed.
  void Disarm() { fed_us_.store(kDisarmed, std::memory_order_relaxed); }
  // Unavailable when the last Feed was too long ago, with both times.
  absl::Status Check() const;

 private:
  static constexpr int64_t kDisarmed = -1;

  const Clock* const clock_;
  const int64_t longest_us_;
  std::atomic<int64_t> fed_us_{kDisarmed};
};

}  // namespace baton
