// Small simulated fleets and their loads, for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "loadtest/simulation.h"

namespace baton {

inline SimulationOptions SmallSimulation(int32_t workers, double rate_per_s, int64_t requests) {
  SimulationOptions options;
  options.fleet.workers = workers;
  options.fleet.worker.pool_tokens = 65'536;
  options.workload = {.kind = WorkloadKind::kSharedPrefix,
                      .seed = 1,
                      .context_length = 65'536,
                      .prompt_tokens = 1000,
                      .output_tokens = 30,
                      .length_spread = 0.5,
                      .prefixes = 20,
                      .prefix_tokens = 2000};
  options.run.arrivals = {.kind = ArrivalKind::kPoisson, .rate_per_s = rate_per_s, .seed = 1};
  options.run.max_requests = requests;
  return options;
}

// Load that swings between long prompts and long answers, on a fleet that the role planner changes.
inline SimulationOptions SwingingSimulation(int32_t workers, double rate_per_s, double duration_s) {
  SimulationOptions options = SmallSimulation(workers, rate_per_s, 0);
  options.fleet.worker = {};
  options.fleet.roles.mode = RolePlannerMode::kApply;
  options.workload = {
      .kind = WorkloadKind::kSwing, .seed = 1, .context_length = 65'536, .prompt_tokens = 4096};
  options.run.duration_us = static_cast<int64_t>(duration_s * 1e6);
  return options;
}

inline SimulatedRun PlaySmall(const SimulationOptions& options) {
  absl::StatusOr<SimulatedRun> run =
      Simulation(options, ComputedProfile(), {}, /*wall=*/nullptr).Play();
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? *std::move(run) : SimulatedRun();
}

inline double MeanTtftMs(const SimulatedRun& run) {
  double sum = 0;
  for (const RequestRecord& record : run.records) sum += record.ttft_ms();
  return sum / static_cast<double>(run.records.size());
}

}  // namespace baton
