#include "worker_rpc/count_rate.h"

namespace baton {

double CountRate::Sample(int64_t now_us, int64_t count) {
  while (points_.size() > 1 && now_us - points_[1].time_us >= kWindowUs) points_.pop_front();
  double per_second = 0;
  if (!points_.empty() && now_us > points_.front().time_us) {
    const auto grown = static_cast<double>(count - points_.front().count);
    per_second = grown * 1e6 / static_cast<double>(now_us - points_.front().time_us);
  }
  if (points_.empty() || now_us - points_.back().time_us >= kLeastIntervalUs) {
    points_.push_back({.time_us = now_us, .count = count});
  }
  return per_second;
}

}  // namespace baton
