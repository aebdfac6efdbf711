// The requests that wait for their first token, as far as it takes to tell a newcomer that it would
// wait in vain: under overload work goes to requests that can still be answered in time, and the
// others know at once.
//
// How long a newcomer will wait is estimated by how many wait already that come before it, and how
// fast a line of late got its first tokens; before that is known, by how long the first of them has
// waited. No knowledge of machines or prompts is needed. Before it come those of its own priority
// and of higher ones, as in the workers' queues; who will come later and pass it is not known.
// Requests without a deadline wait as long as it takes.
//
// Thread safety: the host's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"

namespace baton {

class LoadShedder {
 public:
  // So many may wait before a newcomer whatever is known of the time: they may have short prompts
  // behind a long one. Only so many are a line, whose pace says what the machines can do.
  static constexpr size_t kAlwaysAdmitted = 16;
  // First tokens that make a pace, and that it is the mean of. They come in bunches: a step
  // computes several prompts.
  static constexpr size_t kFewestPaced = 16;
  static constexpr size_t kMostPaced = 64;
  // What lies outside of [-this, this] counts as the nearest: so many priorities are looked at.
  static constexpr int32_t kMostPriority = 100;

  // What a request has in the line.
  struct Place {
    int32_t priority = 0;
    int64_t joined_us = 0;
  };

  // `left_us`: to the newcomer's deadline. ResourceExhausted when it would spend more than half of
  // that waiting.
  absl::Status MayJoin(int64_t now_us, int64_t left_us, int32_t priority = 0) const;
  Place Join(int64_t now_us, int32_t priority = 0);
  // It has its first token, or will never get one. Ignored when nobody has such a place.
  void Served(const Place& place, int64_t now_us);
  void GaveUp(const Place& place, int64_t now_us);
  size_t size() const { return size_; }

 private:
  using Joined = absl::btree_multiset<int64_t>;

  bool IsLine() const { return size_ >= kAlwaysAdmitted; }
  // A clock that runs only while there is a line.
  int64_t LineUs(int64_t now_us) const {
    return lines_before_us_ + (IsLine() ? now_us - line_since_us_ : 0);
  }
  bool Has(const Place& place) const;

  absl::btree_map<int32_t, Joined, std::greater<>> joined_us_;  // by priority, none empty
  size_t size_ = 0;
  int64_t lines_before_us_ = 0;  // how long earlier lines were there
  int64_t line_since_us_ = 0;    // when the present one formed
  std::deque<int64_t> served_;   // by LineUs, the last ones
};

}  // namespace baton
