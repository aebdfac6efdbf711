// Watchdog for the engine loop. The loop calls Feed() each turn, and the steps feed it
// (step_pipeline.h): between two operations on a CPU, at the end of a step on a GPU. Check()
// reports a loop that has been silent for too long, for example because a thread is lost or a
// device hangs. A hung loop cannot report this itself.
//
// Thread safety: Feed and Disarm on the loop and its device's threads; Check on any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "common/clock.h"

namespace baton {

class LoopWatchdog {
 public:
  // `clock` must outlive this. `longest_us`: longest time allowed between two calls of Feed.
  LoopWatchdog(const Clock* clock, int64_t longest_us) : clock_(clock), longest_us_(longest_us) {}

  void Feed() { fed_us_.store(clock_->NowUs(), std::memory_order_relaxed); }
  // Stops the watchdog until the next Feed, because the loop has nothing to do.
  void Disarm() { fed_us_.store(kDisarmed, std::memory_order_relaxed); }
  // Unavailable, with both times, if the last Feed is longer ago than `longest_us`.
  absl::Status Check() const;

 private:
  static constexpr int64_t kDisarmed = -1;

  const Clock* const clock_;
  const int64_t longest_us_;
  std::atomic<int64_t> fed_us_{kDisarmed};
};

}  // namespace baton
