// The requests that wait for their first token, as far as it takes to tell a newcomer that it would
// wait in vain: under overload work goes to requests that can still be answered in time, and the
// others know at once.
//
// How long a newcomer will wait is estimated by how many wait already and how fast a line of late
// got its first tokens; before that is known, by how long the first has waited. No knowledge of
// machines or prompts is needed. Requests without a deadline wait as long as it takes.
//
// Thread safety: the host's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "absl/container/btree_set.h"
#include "absl/status/status.h"

namespace baton {

class WaitingLine {
 public:
  // So many may wait whatever is known of the time: they may have short prompts behind a long one.
  // Only so many are a line, whose pace says what the machines can do.
  static constexpr size_t kAlwaysAdmitted = 16;
  // First tokens that make a pace, and that it is the mean of. They come in bunches: a step
  // computes several prompts.
  static constexpr size_t kFewestPaced = 16;
  static constexpr size_t kMostPaced = 64;

  // `left_us`: to the newcomer's deadline. ResourceExhausted when it would spend more than half of
  // that waiting.
  absl::Status MayJoin(int64_t now_us, int64_t left_us) const;
  void Join(int64_t now_us);
  // `joined_us` as in Join: it has its first token, or will never get one.
  void Served(int64_t joined_us, int64_t now_us);
  void GaveUp(int64_t joined_us, int64_t now_us);
  size_t size() const { return joined_us_.size(); }

 private:
  bool IsLine() const { return joined_us_.size() >= kAlwaysAdmitted; }
  // A clock that runs only while there is a line.
  int64_t LineUs(int64_t now_us) const {
    return lines_before_us_ + (IsLine() ? now_us - line_since_us_ : 0);
  }

  absl::btree_multiset<int64_t> joined_us_;
  int64_t lines_before_us_ = 0;  // how long earlier lines were there
  int64_t line_since_us_ = 0;    // when the present one formed
  std::deque<int64_t> served_;   // by LineUs, the last ones
};

}  // namespace baton
