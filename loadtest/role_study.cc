#include "loadtest/role_study.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"

namespace baton {
namespace {

struct Played {
  int64_t good = 0;
  int64_t requests = 0;
  std::vector<RoleChange> role_changes;
};

class Study {
 public:
  Study(const SimulationOptions& options, const EngineProfile& profile,
        const std::function<void(const std::string&)>& on_run)
      : options_(options), profile_(profile), on_run_(on_run) {}

  absl::StatusOr<RoleStudy> Run() {
    RoleStudy out;
    ASSIGN_OR_RETURN(const Played planner, Play("the planner", options_));
    out.planner_good = planner.good;
    out.flips_per_worker_and_swing =
        FlipsPerWorkerAndSwing(planner.role_changes, options_.workload.swing_half_us());
    ASSIGN_OR_RETURN(const Best fixed, BestSplit("", options_));
    out.best_fixed_prefill_workers = fixed.prefill_workers;
    out.best_fixed_good = fixed.good;
    ASSIGN_OR_RETURN(const Played both, Play("all workers do both", AllBoth()));
    out.all_both_good = both.good;
    for (const int32_t half : {0, 1}) {
      const std::string load = half == 0 ? "long prompts only, " : "long answers only, ";
      SimulationOptions constant = Constant(half);
      ASSIGN_OR_RETURN(const Best best, BestSplit(load, constant));
      out.oracle_prefill_workers[static_cast<size_t>(half)] = best.prefill_workers;
      constant.fleet.prefill_workers = best.prefill_workers;
      constant.fleet.separate_roles = true;
      ASSIGN_OR_RETURN(const Played planned, Play(absl::StrCat(load, "the planner"), constant));
      out.flips_constant_load += std::ssize(planned.role_changes);
    }
    ASSIGN_OR_RETURN(const Played oracle, Play("the oracle", Oracle(out.oracle_prefill_workers)));
    out.oracle_good = oracle.good;
    return out;
  }

 private:
  struct Best {
    int32_t prefill_workers = 0;
    int64_t good = -1;
  };

  static SimulationOptions Fixed(SimulationOptions options, int32_t prefill_workers) {
    options.fleet.roles.mode = RolePlannerMode::kOff;
    options.fleet.prefill_workers = prefill_workers;
    options.fleet.separate_roles = true;
    return options;
  }

  SimulationOptions AllBoth() const {
    SimulationOptions options = Fixed(options_, 0);
    options.fleet.separate_roles = false;
    return options;
  }

  // The load of one half of the swing, for as long as the whole run.
  SimulationOptions Constant(int32_t half) const {
    SimulationOptions options = options_;
    const SwingLengths lengths = SwingLengthsOf(options.workload, half);
    options.workload.kind = WorkloadKind::kSynthetic;
    options.workload.prompt_tokens = lengths.prompt_tokens;
    options.workload.output_tokens = lengths.output_tokens;
    return options;
  }

  SimulationOptions Oracle(const std::array<int32_t, 2>& prefill_workers) const {
    SimulationOptions options = Fixed(options_, prefill_workers[0]);
    const int64_t swing_us = options.workload.swing_half_us();
    for (int64_t swing = 1; swing <= swings_; ++swing) {
      options.fleet.role_splits.push_back(
          {.at_us = swing * swing_us,
           .prefill_workers = prefill_workers[static_cast<size_t>(swing % 2)]});
    }
    return options;
  }

  absl::StatusOr<Best> BestSplit(const std::string& load, const SimulationOptions& options) {
    Best best;
    for (int32_t prefill = 0; prefill < options.fleet.workers; ++prefill) {
      ASSIGN_OR_RETURN(
          const Played played,
          Play(absl::StrCat(load, prefill, " of ", options.fleet.workers, " workers prefill"),
               Fixed(options, prefill)));
      if (played.good > best.good) best = {.prefill_workers = prefill, .good = played.good};
    }
    return best;
  }

  absl::StatusOr<Played> Play(const std::string& name, const SimulationOptions& options) {
    ASSIGN_OR_RETURN(const SimulatedRun run,
                     Simulation(options, profile_, {}, /*wall=*/nullptr).Play());
    Played out = {
        .good = 0, .requests = std::ssize(run.records), .role_changes = run.figures.role_changes};
    for (const RequestRecord& record : run.records) {
      out.good += IsGood(record, options.objectives) ? 1 : 0;
      swings_ = std::max(swings_, record.intended_us / options_.workload.swing_half_us());
    }
    on_run_(absl::StrFormat("%s: %d of %d good, %d role changes", name, out.good, out.requests,
                            out.role_changes.size()));
    return out;
  }

  const SimulationOptions& options_;
  const EngineProfile& profile_;
  const std::function<void(const std::string&)>& on_run_;
  int64_t swings_ = 0;  // in the longest run
};

}  // namespace

int32_t FlipsPerWorkerAndSwing(const std::vector<RoleChange>& changes, int64_t swing_us) {
  std::map<std::pair<int32_t, int64_t>, int32_t> counts;
  int32_t most = 0;
  for (const RoleChange& change : changes) {
    most = std::max(most, ++counts[{change.worker, change.at_us / swing_us}]);
  }
  return most;
}

absl::StatusOr<RoleStudy> StudyRoles(const SimulationOptions& options, const EngineProfile& profile,
                                     const std::function<void(const std::string&)>& on_run) {
  if (options.workload.kind != WorkloadKind::kSwing) {
    return absl::InvalidArgumentError("a study of roles needs the workload swing");
  }
  if (options.objectives.empty()) {
    return absl::InvalidArgumentError("a study of roles needs objectives");
  }
  if (options.fleet.workers < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("the fleet has ", options.fleet.workers,
                     " workers, and a study of roles needs at least 2"));
  }
  if (options.fleet.roles.mode != RolePlannerMode::kApply || options.fleet.prefill_workers < 1) {
    return absl::InvalidArgumentError(
        "a study of roles needs a planner that changes roles, and workers that only prefill");
  }
  return Study(options, profile, on_run).Run();
}

std::vector<MoreFigure> FiguresOf(const RoleStudy& study) {
  const auto ratio = [&](int64_t good) {
    return good > 0
               ? std::optional(static_cast<double>(study.planner_good) / static_cast<double>(good))
               : std::nullopt;
  };
  const auto count = [](int64_t value) { return static_cast<double>(value); };
  const std::string none = "it had no good answers";
  return {{"planner_to_best_fixed", ratio(study.best_fixed_good), "1", none},
          {"planner_to_oracle", ratio(study.oracle_good), "1", none},
          {"planner_to_all_both", ratio(study.all_both_good), "1", none},
          {"flips_per_worker_and_swing", count(study.flips_per_worker_and_swing), "flips", ""},
          {"flips_constant_load", count(study.flips_constant_load), "flips", ""},
          {"planner_good_requests", count(study.planner_good), "requests", ""},
          {"best_fixed_good_requests", count(study.best_fixed_good), "requests", ""},
          {"best_fixed_prefill_workers", count(study.best_fixed_prefill_workers), "workers", ""},
          {"role_oracle_good_requests", count(study.oracle_good), "requests", ""},
          {"role_oracle_long_prompts", count(study.oracle_prefill_workers[0]), "workers", ""},
          {"role_oracle_long_answers", count(study.oracle_prefill_workers[1]), "workers", ""}};
}

}  // namespace baton
