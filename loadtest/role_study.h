// Measures what the role planner is worth on load that swings (WorkloadKind::kSwing). The study
// plays the same requests under the planner, under every fixed split of the fleet, and under an
// oracle, and counts good answers.
//
// A swing is one change between long prompts and long answers. The oracle changes to the best split
// of the new load at the moment of each swing. The best split of a load is found by playing that
// load alone, without swings, under every split.
//
// A split has workers that only prefill and workers that only decode. Of equal splits, the one
// with the fewest prefill workers is the best. As under the planner, there may be none: then decode
// workers compute all prompts. A fleet whose workers all do both needs no planner; it is shown
// beside them.
//
// Thread safety: pure function.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadtest/load_summary.h"
#include "loadtest/simulation.h"

namespace baton {

struct RoleStudy {
  int64_t planner_good = 0;
  int32_t best_fixed_prefill_workers = 0;
  int64_t best_fixed_good = 0;
  // By half of the swing: with long prompts, and with long answers.
  std::array<int32_t, 2> oracle_prefill_workers = {};
  int64_t oracle_good = 0;
  int64_t all_both_good = 0;
  int32_t flips_per_worker_and_swing = 0;  // the most of any worker and swing
  // Sum over the two loads without swings. Each begins with its best split.
  int64_t flips_constant_load = 0;
};

// InvalidArgument names what the options lack: a workload that swings, objectives, a planner that
// changes roles, at least two workers. `on_run` gets a line about each run.
absl::StatusOr<RoleStudy> StudyRoles(const SimulationOptions& options, const EngineProfile& profile,
                                     const std::function<void(const std::string&)>& on_run);

// The most changes of one worker's role between two swings.
int32_t FlipsPerWorkerAndSwing(const std::vector<RoleChange>& changes, int64_t swing_us);

std::vector<MoreFigure> FiguresOf(const RoleStudy& study);

}  // namespace baton
