// The requests that wait for their first token, as far as it takes to tell a newcomer that it would
// wait in vain: under overload work goes to requests that can still be answered in time, and the
// others know at once.
//
// How long a newcomer will wait is estimated by how long the first in the line has waited: no
// knowledge of machines or prompts is needed. Requests without a deadline wait as long as it takes.
//
// Thread safety: the host's lock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/btree_set.h"
#include "absl/status/status.h"

namespace baton {

class WaitingLine {
 public:
  // So many may wait whatever the first one's time: it may have a long prompt.
  static constexpr size_t kAlwaysAdmitted = 16;

  // `left_us`: to the newcomer's deadline. ResourceExhausted when it would spend more than half of
  // that waiting.
  absl::Status MayJoin(int64_t now_us, int64_t left_us) const;
  void Join(int64_t now_us) { joined_us_.insert(now_us); }
  // `joined_us` as in Join.
  void Leave(int64_t joined_us);
  size_t size() const { return joined_us_.size(); }

 private:
  absl::btree_multiset<int64_t> joined_us_;
};

}  // namespace baton
