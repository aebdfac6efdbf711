// Which failures, and which delays, of a request the faults excuse that struck while it lived.
//
// A fault excuses from the moment it strikes until it is over and the fleet has recovered from it.
// Requests that ended before, or began after, are excused nothing.
//
// What only transfers or prefill workers suffer excuses nothing: the answer must come, and
// promptly. Where a decode worker is lost, another one takes over what has no token yet, if there
// is one.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "tests/sim/fault_plan.h"
#include "tests/sim/scenario.h"

namespace baton {

class Excuses {
 public:
  // `scenario` outlives this. Nothing is excused before something strikes.
  explicit Excuses(const Scenario& scenario) : scenario_(scenario) {}

  // Of a process or a path; nodes are named.
  void OnFault(const Fault& fault, int64_t now_us);
  void OnMessageFault(const Fault& fault, MessageKind message, int32_t from, int32_t to,
                      int64_t now_us);

  // How one request ended.
  struct End {
    absl::Status status;
    bool deadline_passed = false;
    int64_t at_us = 0;
    int64_t took_us = 0;  // without the client's own slowness
  };
  // OK, or why this end is not excused.
  absl::Status Judge(const ScenarioRequest& request, const End& end) const;

 private:
  // Both ends belong to it.
  struct Span {
    int64_t from_us = 0;
    int64_t until_us = 0;
  };
  struct Loss {
    int32_t node = -1;
    Span span;
  };
  using Spans = std::vector<Span>;

  const SimWorker::Options& WorkerAt(int32_t node) const;
  bool Decodes(int32_t node) const;
  // Until the fault is over. Another worker does what is left to do of a lost prefill worker, or of
  // a lost path between workers, as soon as the loss is found.
  bool IsWaitedFor(const Fault& fault) const;
  void OnPathFault(const Fault& fault, const Span& away);
  // The worker was away for a while.
  void Lose(int32_t node, const Span& away);
  static bool Meets(const Spans& spans, const Span& life);
  // Workers that decode, or prefill, and were lost during `life`.
  int32_t Lost(bool decode, const Span& life) const;
  // So many requests came before this one ended that a decode worker may have refused it.
  bool QueuesWereFull(const ScenarioRequest& request, const End& end) const;
  bool Excused(const ScenarioRequest& request, const End& end) const;

  const Scenario& scenario_;
  std::vector<Loss> losses_;  // of workers
  Spans failing_;             // calls may fail
  Spans clock_jumps_;         // of decode workers
  Spans delays_;
};

}  // namespace baton
