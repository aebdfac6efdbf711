// Decides who may change a worker's role: an operator always, and at most one planner at a time.
//
// Several routers may plan roles for the same workers. The first planner to ask gets a lease and
// renews it. The worker refuses other planners until the lease ends. A lease that an operator takes
// keeps all planners away, so that no planner undoes an operator's choice.
//
// Pure: the caller passes the time.
//
// Thread safety: none; the caller locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace baton {

class RoleLease {
 public:
  static constexpr int64_t kLongestMs = 3'600'000;
  static constexpr size_t kMostNameBytes = 256;

  // Takes or renews the lease. `planner`: the name of the planner; empty: an operator. `ms` of 0
  // ends a lease of the same holder. InvalidArgument: the name or the time is out of range.
  // FailedPrecondition: another planner or an operator holds the lease; the message says for how
  // long.
  absl::Status Take(const std::string& planner, int64_t ms, int64_t now_us);

 private:
  std::string holder_;  // empty: an operator
  int64_t until_us_ = 0;
};

}  // namespace baton
