// Runs of `baton simulate`: a load test's requests against a simulated fleet.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadtest/load_summary.h"
#include "loadtest/placement_oracle.h"
#include "loadtest/rate_search.h"
#include "loadtest/simulated_fleet.h"
#include "loadtest/workload.h"

namespace baton {

struct SimulationOptions {
  SimulatedFleetOptions fleet;
  WorkloadOptions workload;
  LoadRunOptions run;
  bool scales_trace = false;  // the trace gets the mean rate of the arrivals
  int64_t warmup = 0;         // the first requests, which are sent but not counted
  ServiceObjectives objectives;
};

struct SimulatedRun {
  std::vector<RequestRecord> records;  // without the warm-up
  FleetFigures figures;
  ClipCounts clipped;
};

// A division of the fleet that was tried.
struct TriedShare {
  int32_t prefill_workers = 0;  // 0: all workers do both
  int64_t requests = 0;
  int64_t good = 0;
  double mean_ttft_ms = 0;
  double mean_e2e_ms = 0;
};

class Simulation {
 public:
  // `wall` measures the simulator; null: it is not measured. `trace` is for workloads with a trace.
  // REQUIRES: `wall` outlives this.
  Simulation(const SimulationOptions& options, const EngineProfile& profile,
             std::vector<TracedRequest> trace, const Clock* wall);

  const SimulationOptions& options() const { return options_; }
  void set_prefill_workers(int32_t count) { options_.fleet.prefill_workers = count; }

  // The run of the options. InvalidArgument: the workload cannot be made (MakeWorkload).
  absl::StatusOr<SimulatedRun> Play(const SimulatedFleet::MakePolicy& make_policy = {}) const;

  // Searches the highest rate at which 99 % of requests meet the objectives. Each step has other
  // prompts. Returns the run that confirmed it, or the last one.
  struct FoundRate {
    SimulatedRun run;
    std::vector<RateStep> steps;
    std::optional<RateStep> result;
    bool reached_highest = false;
  };
  using OnRateStep = std::function<void(double rate_per_s, const RateStep&)>;
  absl::StatusOr<FoundRate> FindRate(double lowest, double highest,
                                     const OnRateStep& on_step) const;

  // Searches the number of prefill workers with the most good requests, or without objectives with
  // the shortest answers. It tries every eighth of the fleet, then smaller steps around the best.
  using OnShare = std::function<void(const TriedShare&)>;
  absl::StatusOr<TriedShare> FindShare(const OnShare& on_share) const;

  // Searches placements, as placement_oracle.h says.
  struct OracleFigures {
    OracleResult result;
    int64_t bound = 0;  // RelaxedBound
  };
  absl::StatusOr<OracleFigures> AskOracle(
      int32_t searches, const std::function<void(int32_t done, int64_t best)>& on_progress) const;

 private:
  // A run at `rate_per_s`, if that is positive. Steps have different prompts; step 0 has those of
  // the options.
  absl::StatusOr<SimulatedRun> PlayStep(double rate_per_s, uint64_t step,
                                        const SimulatedFleetOptions& fleet,
                                        const SimulatedFleet::MakePolicy& make_policy) const;

  SimulationOptions options_;
  const StepTimes times_;
  const std::vector<TracedRequest> trace_;
  const Clock* const wall_;
};

// The figures that only a simulation has.
std::vector<MoreFigure> FiguresOf(const SimulatedRun& run, const SimulatedFleetOptions& fleet);
// Those of an oracle. nullopt: `absent` says why there are none.
std::vector<MoreFigure> FiguresOf(const std::optional<Simulation::OracleFigures>& oracle,
                                  const std::string& absent);

}  // namespace baton
