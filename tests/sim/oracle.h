// Oracles: rules that must hold in every run.
//   answer        Tokens, text, finish reason and logits hash equal those of the literal function.
//                 Before a failure, they are a prefix of it. The ledger's numbers of chunks and of
//                 repaired tokens are right.
//   outcome       Each request ends exactly once, by its deadline, with nothing after the end. A
//                 failure is a typed error that this run's faults excuse.
//   conservation  After every event, every block of every KV group is free, cached, owned or in
//                 flight. At rest no block is owned, in flight or held beyond the end of a shrunk
//                 pool, no cached chunk is referenced, and the chunk cache keeps its budget.
//   isolation     A request finds only chunks of its own namespace (chunk_oracle.h).
//   liveness      After the faults, all requests end. A second later, no transfer is open; after
//   two
//                 more seconds, no worker holds a block. Then all workers serve again.
//   detection     A lost peer is found in time, and a peer that answers again counts as alive again
//                 in time (loss_oracle.h).
//   index         At rest the router's index equals the caches' contents. The index refuses no
//                 batch of events.
//   process       A process follows the rules for its own shutdown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/sim/excuses.h"
#include "tests/sim/literal_answer.h"
#include "tests/sim/mutants.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sim_worker.h"

namespace baton {

struct Violation {
  std::string oracle;
  std::string what;
  uint64_t request = 0;  // 0: none
  int32_t node = -1;     // -1: none
};

// Checks the responses of one request, as its client sees them, against the literal answer.
class RequestOracle {
 public:
  RequestOracle(const ScenarioRequest& request, const SimModel& model, int32_t context_length);

  std::optional<Violation> OnResponse(const SimResponse& response);
  // `late_us`: the part of the request's time that the client's own slow reading took.
  std::optional<Violation> OnEnd(const absl::Status& status, int64_t now_us, int64_t late_us,
                                 const Excuses& excuses);
  bool ended() const { return ended_; }
  bool succeeded() const { return ended_ && finished(); }

 private:
  Violation Say(const char* oracle, std::string what) const;
  std::optional<Violation> OnTokens(const TokenOutput& tokens);
  std::optional<Violation> OnFinish(const FinishInfo& info);
  std::optional<Violation> OnLedger(const ChunkLedger& ledger) const;

  struct Choice {
    SimAnswer expected;
    bool finished = false;
    size_t tokens = 0;
    std::string text;
  };
  // Returns null if the request has no such choice, or if the choice has finished.
  Choice* Find(int32_t choice);
  bool finished() const;

  const ScenarioRequest& request_;
  std::vector<Choice> choices_;
  bool started_ = false;
  bool ended_ = false;
};

std::optional<Violation> CheckConservation(SimWorker& worker, Mutant mutant);
// Checks that nothing runs or waits and that all blocks are free or cached.
std::optional<Violation> CheckAtRest(SimWorker& worker);

}  // namespace baton
