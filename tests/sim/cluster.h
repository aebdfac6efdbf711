// Runs one scenario on a simulated cluster. It plays all requests and faults, then heals the
// cluster and checks that it serves again.
//
// Everything belongs to one thread and one event queue. The same scenario and seed give the same
// run and the same fingerprint of the history.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/chunk_oracle.h"
#include "tests/sim/fault_plan.h"
#include "tests/sim/history.h"
#include "tests/sim/loss_oracle.h"
#include "tests/sim/oracle.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/sim_network.h"
#include "tests/sim/sim_router.h"
#include "tests/sim/sim_stream.h"
#include "tests/sim/sim_worker.h"

namespace baton {

class SimCluster {
 public:
  // `scenario` must outlive this.
  SimCluster(const Scenario& scenario, uint64_t seed, Mutant mutant);
  ~SimCluster();

  // Runs the scenario. Returns the first violation, if any.
  std::optional<Violation> Run();

  // Number of messages until the scenario's own requests ended. Does not count the healing.
  int64_t scenario_messages() const { return scenario_messages_; }
  int64_t events() const { return queue_.events_run(); }
  int64_t requests_succeeded() const { return succeeded_; }
  // Counts of the chunk caches are those of workers that are up.
  ChunkCoverage chunk_coverage() const;
  uint64_t fingerprint() const { return history_.fingerprint(); }
  // Returns the events that led to the violation, as readable text.
  std::string Story(const Violation& violation) const;

 private:
  SimWorker* WorkerAt(const std::string& address);
  SimWorker* WorkerOf(int32_t node);
  void MakeWorkers(uint64_t seed, Mutant mutant);

  void CarryOut(const Fault& fault);
  void KillNode(int32_t node);
  void StartNode(int32_t node);
  void Restart(const Fault& fault);
  void Partition(const Fault& fault, bool both_ways);
  void Isolate(const Fault& fault);
  void Pause(const Fault& fault);

  // Runs events until the condition holds. Returns false if it does not hold by `until_us` or if a
  // rule was violated.
  template <typename Condition>
  bool RunUntil(int64_t until_us, Condition condition);
  void Violate(const Violation& violation);
  void OnRefusedEvents(const std::string& worker_id, const absl::Status& why);
  void Heal();
  // Same as RunUntil, but polls the condition every kAwaitStepUs. For conditions that are expensive
  // to check.
  template <typename Condition>
  bool Await(int64_t for_us, Condition condition);
  bool AllRegistered();
  bool AllIdle() const;
  bool NoTransfers() const;  // checks workers that are up
  void CheckLosses();
  void ExpectReclaimed();
  std::vector<SimWorker*> Workers() const;
  void ExpectRest(const char* when);
  void ExpectQuiet();
  void ServeFreshRequests();
  std::unique_ptr<SimClients> MakeClients();

  const Scenario& scenario_;
  const Mutant mutant_;
  EventQueue queue_;
  History history_;
  SimNetwork network_;
  SimStreams streams_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
  std::unique_ptr<FaultPlan> faults_;
  std::unique_ptr<SimRouter> router_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
  std::unique_ptr<LossOracle> loss_oracle_;
  Excuses excuses_;
  const Excuses no_excuses_;
  ChunkOracle chunk_oracle_;
  std::unique_ptr<SimClients> clients_;
  std::vector<std::unique_ptr<ScenarioRequest>> fresh_;
  std::unique_ptr<SimClients> fresh_clients_;
  std::optional<Violation> violation_;
  bool healing_ = false;
  int64_t scenario_messages_ = 0;
  int64_t succeeded_ = 0;
};

}  // namespace baton
