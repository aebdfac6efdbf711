// Load shedder: refuses new requests that would probably miss their deadline in the queue. Under
// overload, the work goes to requests that can still be answered in time, and the others learn it
// at once.
//
// It keeps a queue ("line") of all requests that wait for their first token. A new request's wait
// is estimated from the number of requests ahead of it and from the pace. The pace is how fast
// recent requests got their first tokens while there was a line. Until that pace is known, the
// estimate is how long the oldest request ahead has waited. The estimate needs no knowledge of
// machines or prompts. Requests of the same or a higher priority are ahead, as in the workers'
// queues. Tenants take turns, so fewer of them may be ahead; the caller then says how many. Later
// requests with a higher priority cannot be foreseen. Requests without a deadline are always
// accepted.
//
// Thread safety: the host's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"

namespace baton {

class LoadShedder {
 public:
  // With fewer requests ahead than this, a new request is always accepted: those ahead may have
  // short prompts behind a long one. Only this many requests count as a line, so that its pace
  // reflects the machines.
  static constexpr size_t kAlwaysAdmitted = 16;
  // Bounds on the first tokens that the pace is the mean of. They come in bunches, because one step
  // computes several prompts.
  static constexpr size_t kFewestPaced = 16;
  static constexpr size_t kMostPaced = 64;
  // Priorities outside [-this, this] count as the nearest bound, so MayJoin looks at few
  // priorities.
  static constexpr int32_t kMostPriority = 100;

  // A request's place in the queue.
  struct Place {
    int32_t priority = 0;
    int64_t joined_us = 0;
  };

  // Returns OK if a new request may join. `left_us` is the time to its deadline. ResourceExhausted
  // if it would probably wait longer than half of that; RetryAfterMs (common/error_details.h) then
  // says when to try again. At most `most_ahead` requests are ahead of it.
  absl::Status MayJoin(int64_t now_us, int64_t left_us, int32_t priority = 0,
                       size_t most_ahead = std::numeric_limits<size_t>::max()) const;
  Place Join(int64_t now_us, int32_t priority = 0);
  // The request got its first token (Served) or will never get one (GaveUp). Ignored if no request
  // has this place.
  void Served(const Place& place, int64_t now_us);
  void GaveUp(const Place& place, int64_t now_us);
  size_t size() const { return size_; }

 private:
  using Joined = absl::btree_multiset<int64_t>;

  bool IsLine() const { return size_ >= kAlwaysAdmitted; }
  // Time during which there was a line, up to now. The pace is measured on this clock.
  int64_t LineUs(int64_t now_us) const {
    return lines_before_us_ + (IsLine() ? now_us - line_since_us_ : 0);
  }
  bool Has(const Place& place) const;

  absl::btree_map<int32_t, Joined, std::greater<>> joined_us_;  // by priority; no set is empty
  size_t size_ = 0;
  int64_t lines_before_us_ = 0;  // total time of earlier lines
  int64_t line_since_us_ = 0;    // when the present line formed
  std::deque<int64_t> served_;   // LineUs of the most recent first tokens
};

}  // namespace baton
