// What must hold in every run, and who says so when it does not:
//   answer        a request's tokens, text, end reason and logits hash are those of the literal
//                 function; what came before a failure is the beginning of it
//   outcome       exactly one end, nothing after it, none after the deadline; a failure is a typed
//                 error that this run's faults excuse
//   conservation  every block of every KV group is free, cached, owned or in flight, after every
//                 event; at rest nothing is owned or in flight, nor held behind the end of a shrunk
//                 pool
//   liveness      after the faults everything ends, empties, and serves again
//   index         at rest the router's index says what the caches hold; no batch of events is
//   refused process       a process keeps the rules of its own end
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/sim/excuses.h"
#include "tests/sim/mutants.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sim_model.h"
#include "tests/sim/sim_worker.h"

namespace baton {

struct Violation {
  std::string oracle;
  std::string what;
  uint64_t request = 0;  // 0: none
  int32_t node = -1;     // -1: none
};

// A client's view of one request, against the literal answer.
class RequestOracle {
 public:
  RequestOracle(const ScenarioRequest& request, const SimModel& model, int32_t context_length);

  std::optional<Violation> OnResponse(const SimResponse& response);
  // `late_us`: how much of the time since was spent by the client's own slow reading.
  std::optional<Violation> OnEnd(const absl::Status& status, int64_t now_us, int64_t late_us,
                                 const Excuses& excuses);
  bool ended() const { return ended_; }
  bool succeeded() const { return ended_ && finished(); }

 private:
  Violation Say(const char* oracle, std::string what) const;
  std::optional<Violation> OnTokens(const TokenOutput& tokens);
  std::optional<Violation> OnFinish(const FinishInfo& info);

  struct Choice {
    SimAnswer expected;
    bool finished = false;
    size_t tokens = 0;
    std::string text;
  };
  // None: it is none of the request's, or has finished.
  Choice* Find(int32_t choice);
  bool finished() const;

  const ScenarioRequest& request_;
  std::vector<Choice> choices_;
  bool started_ = false;
  bool ended_ = false;
};

std::optional<Violation> CheckConservation(SimWorker& worker, Mutant mutant);
// Nothing runs, nothing waits, all blocks are free or cached.
std::optional<Violation> CheckAtRest(SimWorker& worker);

}  // namespace baton
