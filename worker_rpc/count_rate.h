// The rate at which a count grows: its mean over the last seconds.
//
// Thread safety: none; the owner's lock.
#pragma once

#include <cstdint>
#include <deque>

namespace baton {

class CountRate {
 public:
  static constexpr int64_t kWindowUs = 5'000'000;
  // Samples that are closer together are not kept: a status may be asked for at any rate.
  static constexpr int64_t kLeastIntervalUs = 100'000;

  // `count` at `now_us`; neither ever shrinks. Returns its growth per second since the youngest
  // sample that is kWindowUs old, or since the first one. 0 for the first sample.
  double Sample(int64_t now_us, int64_t count);

 private:
  struct Point {
    int64_t time_us = 0;
    int64_t count = 0;
  };
  std::deque<Point> points_;  // the first one is the youngest that is kWindowUs old, if any is
};

}  // namespace baton
