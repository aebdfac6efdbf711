// Rate limit of log lines: so many at once, then so many a second. It counts the lines that are
// left out.
//
// Thread safety: the owner's lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace baton {

class LineBudget {
 public:
  // REQUIRES: most_at_once >= 1, lines_a_second >= 1.
  LineBudget(int64_t most_at_once, int64_t lines_a_second)
      : most_at_once_(most_at_once), us_a_line_(1'000'000 / lines_a_second), left_(most_at_once) {}

  // Returns true if a line may be written now. Otherwise it counts as left out.
  bool Take(int64_t now_us) {
    const int64_t earned = (now_us - refilled_us_) / us_a_line_;
    if (earned > 0) {
      left_ = std::min(most_at_once_, left_ + std::min(earned, most_at_once_));
      refilled_us_ += earned * us_a_line_;
    }
    if (left_ == 0) {
      ++left_out_;
      return false;
    }
    --left_;
    return true;
  }
  // Returns the number of lines that were left out since the last call.
  int64_t TakeLeftOut() { return std::exchange(left_out_, 0); }

 private:
  const int64_t most_at_once_;
  const int64_t us_a_line_;
  int64_t left_;
  int64_t refilled_us_ = 0;
  int64_t left_out_ = 0;
};

}  // namespace baton
