// Which failures, and which delays, the faults excuse that have struck so far.
//
// What only transfers or prefill workers suffer excuses nothing: the answer must come, and
// promptly. Where a decode worker is lost, another one takes over what has no token yet, if there
// is one.
#pragma once

#include <cstdint>
#include <set>

#include "absl/status/status.h"
#include "tests/sim/fault_plan.h"
#include "tests/sim/scenario.h"

namespace baton {

class Excuses {
 public:
  // `scenario` outlives this. Nothing is excused before something strikes.
  explicit Excuses(const Scenario& scenario) : scenario_(scenario) {}

  // Of a process or a path; nodes are named.
  void OnFault(const Fault& fault);
  void OnMessageFault(const Fault& fault, MessageKind message, int32_t from, int32_t to);

  // How one request ended.
  struct End {
    absl::Status status;
    bool deadline_passed = false;
    bool had_tokens = false;
    int64_t took_us = 0;  // without the client's own slowness
  };
  // OK, or why this end is not excused.
  absl::Status Judge(const ScenarioRequest& request, const End& end) const;

 private:
  bool Decodes(int32_t node) const;
  // A decode worker takes so few requests that it may refuse one.
  bool QueuesAreShort() const;
  // Not there for a while.
  void LoseDecodeWorker(int32_t node);
  // A decode worker was lost, and every other one that could go on with its answers was too.
  bool NobodyGoesOn() const;
  void OnPathFault(const Fault& fault);
  bool Excused(const ScenarioRequest& request, const End& end) const;

  const Scenario& scenario_;
  std::set<int32_t> lost_;       // decode workers
  bool calls_may_fail_ = false;  // at any time
  bool clocks_jump_ = false;     // of decode workers
  int64_t delays_us_ = 0;        // of all faults together
};

}  // namespace baton
