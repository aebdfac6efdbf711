// Flags of `baton simulate`, and what they mean together.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/bench_flags.h"
#include "common/command_line.h"
#include "common/settings.h"
#include "loadtest/engine_profile.h"
#include "loadtest/simulation.h"

namespace baton {

struct SimulateFlags {
  BenchFlags load;
  std::string profile_file;
  SimulatedFleetOptions fleet;
  std::string prefill_share = "0";
  double transfer_gb_per_s = 10;
  double transfer_latency_ms = 1;
  int32_t oracle = 0;
  bool role_study = false;
  SettingList routing;       // settings of fleet.routing
  SettingList role_planner;  // settings of fleet.roles
};

void AddSimulateFlags(CommandLine& command, SimulateFlags& flags);

struct SimulatePlan {
  BenchPlan load;
  SimulationOptions options;
  bool finds_share = false;
};

// InvalidArgument names the flags that do not fit together. `profile`: of --profile.
absl::StatusOr<SimulatePlan> PlanSimulation(const CommandLine& command, const SimulateFlags& flags,
                                            const EngineProfile& profile);

// Reads the file of --profile; without it, returns ComputedProfile(). InvalidArgument names the
// file, the field, the value and the limit.
absl::StatusOr<EngineProfile> ReadProfile(const std::string& path);

}  // namespace baton
