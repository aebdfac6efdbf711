// Decides whether the injected faults excuse a request's failure or delay.
//
// A fault excuses requests that are active between its start and the fleet's recovery from it. It
// does not excuse requests that ended earlier or began later.
//
// A fault that affects only transfers or prefill workers excuses no failure: the answer must still
// arrive promptly, later by the limit of a pull at most. If a decode worker is lost, another decode
// worker, if any, takes over requests that have no token yet.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "tests/sim/fault_plan.h"
#include "tests/sim/scenario.h"

namespace baton {

class Excuses {
 public:
  // `scenario` must outlive this. Excuses nothing before the first fault.
  explicit Excuses(const Scenario& scenario) : scenario_(scenario) {}

  // Records a fault of a process or a path. REQUIRES: the fault names its nodes.
  void OnFault(const Fault& fault, int64_t now_us);
  void OnMessageFault(const Fault& fault, MessageKind message, int32_t from, int32_t to,
                      int64_t now_us);

  // End of one request.
  struct End {
    absl::Status status;
    bool deadline_passed = false;
    int64_t at_us = 0;
    int64_t took_us = 0;  // without the time that the client itself was slow
  };
  // Returns OK if the end is correct or excused, else the reason why it is not.
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
  // Returns how many workers that decode (or prefill) were lost during `life`, of those that take
  // the request.
  int32_t Lost(bool decode, const ScenarioRequest& request, const Span& life) const;
  // Returns how many workers decode and take the request; of a request that no worker takes, how
  // many decode.
  int32_t Decoders(const ScenarioRequest& request) const;
  // Returns true if so many requests came before this one ended that a decode worker may have
  // refused it because of a full queue.
  bool QueuesWereFull(const ScenarioRequest& request, const End& end) const;
  // Returns true if some prefill worker may hand KV over to some other worker that decodes. With
  // several KV groups, the sender's blocks must not be smaller.
  bool SomePairFits() const;
  bool Excused(const ScenarioRequest& request, const End& end) const;
  // Returns true if FAILED_PRECONDITION is right: no worker takes the request, or only workers that
  // were lost for a while take it.
  bool IsRefused(const ScenarioRequest& request, const Span& life) const;
  // Of a chunked prompt, shortly after the start: the router must not say FAILED_PRECONDITION yet,
  // and says UNAVAILABLE instead (RouterCore::kRegistrationUs).
  bool IsTooEarly(const ScenarioRequest& request, const End& end) const;
  bool IsRefusedForNow(const ScenarioRequest& request, const End& end, const Span& life) const;

  const Scenario& scenario_;
  std::vector<Loss> losses_;  // losses of workers
  Spans failing_;             // times when calls may fail
  Spans clock_jumps_;         // times of clock jumps of decode workers
  Spans damaged_streams_;     // when a stream of KV lost the end of a message, or got a wrong bit
  Spans broken_hand_offs_;    // no path between two workers
  Spans delays_;
};

}  // namespace baton
