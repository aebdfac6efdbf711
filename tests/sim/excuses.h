// Decides whether the injected faults excuse a request's failure or delay.
//
// A fault excuses requests that live between its start and the fleet's recovery from it. It does
// not excuse requests that ended earlier or began later.
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
  // Includes both ends.
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
  // Returns true if requests must wait until the fault is over. If a prefill worker or a path
  // between workers is lost, another worker continues as soon as the loss is found.
  bool IsWaitedFor(const Fault& fault) const;
  void OnPathFault(const Fault& fault, const Span& away);
  // Records that the worker was away during `away`.
  void Lose(int32_t node, const Span& away);
  static bool Meets(const Spans& spans, const Span& life);
  // Returns how many workers that decode (or prefill) were lost during `life`.
  int32_t Lost(bool decode, const Span& life) const;
  // Returns true if so many requests came before this one ended that a decode worker may have
  // refused it because of a full queue.
  bool QueuesWereFull(const ScenarioRequest& request, const End& end) const;
  // Returns true if some prefill worker may hand KV over to some other worker that decodes. With
  // several KV groups, the sender's blocks must not be smaller.
  bool SomePairFits() const;
  bool Excused(const ScenarioRequest& request, const End& end) const;

  const Scenario& scenario_;
  std::vector<Loss> losses_;  // of workers
  Spans failing_;             // times when calls may fail
  Spans clock_jumps_;         // of decode workers
  Spans delays_;
};

}  // namespace baton
