// Token bucket: grants an amount per minute, with bursts of up to one minute's amount.
//
// A request for more than one minute's amount is granted when the bucket is full. The bucket is
// then in debt, and fills from below zero. So a large request waits, but is never impossible.
//
// Thread safety: none. Pure: the caller passes the time, in microseconds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace baton {

class MinuteBucket {
 public:
  // Time until `amount` can be taken; 0: now. REQUIRES: per_minute >= 1, amount >= 0.
  int64_t WaitUs(double amount, double per_minute, int64_t now_us) {
    Fill(per_minute, now_us);
    const double missing = std::min(amount, per_minute) - level_;
    if (missing <= kRounding) return 0;
    return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(missing / per_minute * kMinuteUs)));
  }
  void Take(double amount) { level_ -= amount; }
  // Gives back what was taken and not used.
  void Give(double amount, double per_minute) { level_ = std::min(level_ + amount, per_minute); }

 private:
  static constexpr double kMinuteUs = 60e6;
  static constexpr double kRounding = 1e-6;

  void Fill(double per_minute, int64_t now_us) {
    if (!began_) {
      began_ = true;
      level_ += per_minute;  // a new bucket is full
    } else {
      level_ += static_cast<double>(now_us - filled_us_) / kMinuteUs * per_minute;
    }
    level_ = std::min(level_, per_minute);
    filled_us_ = now_us;
  }

  bool began_ = false;
  double level_ = 0;
  int64_t filled_us_ = 0;
};

}  // namespace baton
