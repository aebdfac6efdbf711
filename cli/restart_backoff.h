// Backoff for restarting ended processes. The delay doubles each time that a process ends soon
// after its start. A process that cannot run therefore does not occupy the machine.
//
// Thread safety: belongs to one thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace baton {

class RestartBackoff {
 public:
  static constexpr int64_t kFirstMs = 500;
  static constexpr int64_t kMostMs = 30'000;
  // A process that ran this long counts as healthy: its next delay is the first one again.
  static constexpr int64_t kWellMs = 60'000;

  // `ran_ms`: time from the process's start to its end.
  int64_t NextDelayMs(int64_t ran_ms) {
    if (ran_ms >= kWellMs) next_ms_ = kFirstMs;
    const int64_t delay_ms = next_ms_;
    next_ms_ = std::min(2 * next_ms_, kMostMs);
    return delay_ms;
  }

 private:
  int64_t next_ms_ = kFirstMs;
};

}  // namespace baton
