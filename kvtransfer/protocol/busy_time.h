// Stopwatch that sums the time during which requested data had not arrived yet.
//
// Thread safety: belongs to one thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace baton {

class BusyTime {
 public:
  void Start(int64_t now_us) {
    if (running_) return;
    running_ = true;
    mark_us_ = std::max(mark_us_, now_us);  // the round's clock may be older than the last Touch
  }
  // Counts the time up to now. With `stop`, the stopwatch pauses until the next Start.
  void Touch(int64_t now_us, bool stop) {
    if (!running_) return;
    total_us_ += now_us - mark_us_;
    mark_us_ = now_us;
    running_ = !stop;
  }
  int64_t total_us() const { return total_us_; }

 private:
  bool running_ = false;
  int64_t mark_us_ = 0;
  int64_t total_us_ = 0;
};

}  // namespace baton
