// Mean rate of growth of a counter over the last seconds.
//
// Thread safety: none. The owner locks.
#pragma once

#include <cstdint>
#include <deque>

namespace baton {

class CountRate {
 public:
  static constexpr int64_t kWindowUs = 5'000'000;
  // Samples that are closer together are not stored, because clients may ask for status at any
  // rate.
  static constexpr int64_t kLeastIntervalUs = 100'000;

  // Takes the value of the counter at `now_us`; neither may decrease. Returns the growth per second
  // since the newest sample that is at least kWindowUs old, or else since the first. 0 for the
  // first sample.
  double Sample(int64_t now_us, int64_t count);

 private:
  struct Point {
    int64_t time_us = 0;
    int64_t count = 0;
  };
  std::deque<Point> points_;  // the first one is the newest that is at least kWindowUs old, if any
};

}  // namespace baton
