#include "loadtest/simulation.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "common/status_macros.h"
#include "loadtest/seeded_random.h"

namespace baton {
namespace {

double MeanOf(const std::vector<RequestRecord>& records,
              const std::function<double(const RequestRecord&)>& value) {
  double sum = 0;
  int64_t count = 0;
  for (const RequestRecord& record : records) {
    if (record.outcome != RequestOutcome::kWhole) continue;
    sum += value(record);
    ++count;
  }
  return count > 0 ? sum / static_cast<double>(count) : 0;
}

bool IsBetter(const TriedShare& a, const TriedShare& b, bool has_objectives) {
  if (has_objectives && a.good != b.good) return a.good > b.good;
  return a.mean_e2e_ms < b.mean_e2e_ms;
}

}  // namespace

Simulation::Simulation(const SimulationOptions& options, const EngineProfile& profile,
                       std::vector<TracedRequest> trace, const Clock* wall)
    : options_(options), times_(profile), trace_(std::move(trace)), wall_(wall) {}

absl::StatusOr<SimulatedRun> Simulation::PlayStep(
    double rate_per_s, uint64_t step, const SimulatedFleetOptions& fleet_options,
    const SimulatedFleet::MakePolicy& make_policy) const {
  WorkloadOptions workload_options = options_.workload;
  LoadRunOptions run_options = options_.run;
  if (step > 0) {
    workload_options.seed = MixBits(options_.workload.seed + step);
    run_options.arrivals.seed = workload_options.seed;
  }
  if (rate_per_s > 0) run_options.arrivals.rate_per_s = rate_per_s;
  if (options_.scales_trace) {
    run_options.trace_speed = TraceSpeedFor(trace_, run_options.arrivals.rate_per_s);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Workload> workload,
                   MakeWorkload(workload_options, trace_));
  LoadRun run(run_options, *workload);
  SimulatedFleet fleet(fleet_options, &times_, wall_, make_policy);
  SimulatedRun out;
  out.records = fleet.Run(run);
  const auto warm = std::min<int64_t>(options_.warmup, static_cast<int64_t>(out.records.size()));
  out.records.erase(out.records.begin(), out.records.begin() + warm);
  out.figures = fleet.figures();
  out.clipped = run.clipped();
  return out;
}

absl::StatusOr<SimulatedRun> Simulation::Play(const SimulatedFleet::MakePolicy& make_policy) const {
  return PlayStep(0, 0, options_.fleet, make_policy);
}

absl::StatusOr<Simulation::FoundRate> Simulation::FindRate(double lowest, double highest,
                                                           const OnRateStep& on_step) const {
  RateSearch search(options_.run.arrivals.rate_per_s, lowest, highest);
  FoundRate found;
  uint64_t step_number = 0;
  while (const std::optional<double> rate = search.NextRate()) {
    ASSIGN_OR_RETURN(found.run, PlayStep(*rate, ++step_number, options_.fleet, {}));
    RateStep step = {.rate_per_s = *rate,
                     .requests = static_cast<int64_t>(found.run.records.size())};
    step.good = std::count_if(
        found.run.records.begin(), found.run.records.end(),
        [&](const RequestRecord& record) { return IsGood(record, options_.objectives); });
    on_step(*rate, step);
    search.OnStep(step);
  }
  found.steps = search.steps();
  found.result = search.result();
  found.reached_highest = search.reached_highest();
  return found;
}

absl::StatusOr<TriedShare> Simulation::FindShare(const OnShare& on_share) const {
  const int32_t workers = options_.fleet.workers;
  std::set<int32_t> tried;
  std::optional<TriedShare> best;
  const auto attempt = [&](int32_t prefill_workers) -> absl::Status {
    if (prefill_workers < 0 || prefill_workers >= workers) return absl::OkStatus();
    if (!tried.insert(prefill_workers).second) return absl::OkStatus();
    SimulatedFleetOptions fleet = options_.fleet;
    fleet.prefill_workers = prefill_workers;
    fleet.roles.mode = RolePlannerMode::kOff;
    ASSIGN_OR_RETURN(const SimulatedRun run, PlayStep(0, 0, fleet, {}));
    TriedShare share = {.prefill_workers = prefill_workers,
                        .requests = static_cast<int64_t>(run.records.size())};
    share.good = std::count_if(
        run.records.begin(), run.records.end(),
        [&](const RequestRecord& record) { return IsGood(record, options_.objectives); });
    share.mean_ttft_ms = MeanOf(run.records, [](const RequestRecord& it) { return it.ttft_ms(); });
    share.mean_e2e_ms = MeanOf(run.records, [](const RequestRecord& it) { return it.e2e_ms(); });
    on_share(share);
    if (!best || IsBetter(share, *best, !options_.objectives.empty())) best = share;
    return absl::OkStatus();
  };
  constexpr int32_t kParts = 8;
  for (int32_t part = 0; part < kParts; ++part) {
    RETURN_IF_ERROR(attempt(static_cast<int32_t>(int64_t{workers} * part / kParts)));
  }
  for (int32_t step = std::max(1, workers / (2 * kParts)); step >= 1; step /= 2) {
    const int32_t middle = best->prefill_workers;
    if (middle == 0) break;  // whole workers do best; the smallest pools were tried
    RETURN_IF_ERROR(attempt(std::max(1, middle - step)));
    RETURN_IF_ERROR(attempt(middle + step));
  }
  return *best;
}

absl::StatusOr<Simulation::OracleFigures> Simulation::AskOracle(
    int32_t searches, const std::function<void(int32_t, int64_t)>& on_progress) const {
  OracleFigures figures;
  SimulatedFleetOptions fleet = options_.fleet;
  fleet.keeps_least_work = true;
  ASSIGN_OR_RETURN(const SimulatedRun own, PlayStep(0, 0, fleet, {}));
  std::span<const LeastWork> work = own.figures.least_work;
  work = work.subspan(std::min(work.size(), static_cast<size_t>(options_.warmup)));
  figures.bound = RelaxedBound(work, options_.objectives, times_, fleet.workers);
  const PlayRun play = [&](const SimulatedFleet::MakePolicy& make_policy) {
    absl::StatusOr<SimulatedRun> run = PlayStep(0, 0, options_.fleet, make_policy);
    return run.ok() ? std::move(run->records) : std::vector<RequestRecord>();
  };
  figures.result = SearchPlacements({.searches = searches,
                                     .seed = options_.workload.seed,
                                     .objectives = options_.objectives,
                                     .workers = fleet.workers},
                                    play, on_progress);
  return figures;
}

std::vector<MoreFigure> FiguresOf(const SimulatedRun& run, const SimulatedFleetOptions& fleet) {
  const FleetFigures& it = run.figures;
  const auto share = [&it](int64_t count) {
    return static_cast<double>(count) / static_cast<double>(std::max<int64_t>(1, it.requests));
  };
  const auto if_measured = [](double value) {
    return value > 0 ? std::optional(value) : std::nullopt;
  };
  const std::string no_clock = "the simulator had no clock";
  return {{"prefill_workers", fleet.prefill_workers, "workers", ""},
          {"local_prefill_share", share(it.local_prefills), "1", ""},
          {"pull_share", share(it.pulls), "1", ""},
          {"preemptions", static_cast<double>(it.preemptions), "preemptions", ""},
          {"role_changes", static_cast<double>(it.role_changes.size()), "changes", ""},
          {"wanted_prefill_workers",
           it.wanted_prefill_workers >= 0 ? std::optional<double>(it.wanted_prefill_workers)
                                          : std::nullopt,
           "workers", "no role planner, or too few requests for it"},
          {"max_over_mean_load", it.max_over_mean_load, "1", ""},
          {"window_max_over_mean_load", it.window_max_over_mean_load, "1", ""},
          {"events_per_s", if_measured(it.events_per_s()), "events/s", no_clock},
          {"decisions_per_s", if_measured(it.decisions_per_s()), "decisions/s", no_clock}};
}

std::vector<MoreFigure> FiguresOf(const std::optional<Simulation::OracleFigures>& oracle,
                                  const std::string& absent) {
  std::optional<double> to_oracle, to_bound, best, bound;
  if (oracle) {
    const auto own = static_cast<double>(oracle->result.policy_good);
    best = static_cast<double>(oracle->result.good);
    bound = static_cast<double>(oracle->bound);
    if (*best > 0) to_oracle = own / *best;
    if (*bound > 0) to_bound = own / *bound;
  }
  return {{"goodput_to_oracle", to_oracle, "1", absent},
          {"goodput_to_bound", to_bound, "1", absent},
          {"oracle_good_requests", best, "requests", absent},
          {"bound_good_requests", bound, "requests", absent}};
}

}  // namespace baton
