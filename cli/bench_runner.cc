#include "cli/bench_runner.h"

#include <sched.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "loadtest/seeded_random.h"

namespace baton {
namespace {

// The search goes down to this share of its first rate. Below, a run would take hours.
constexpr double kLowestShare = 0.01;

int32_t ProcessorsOfThisProcess() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

}  // namespace

std::string BenchRunner::ProgressLine(const LoadProgress& progress, double rate_per_s) const {
  std::string out = absl::StrFormat("%.0f s: %d sent, %d running, %d ok", progress.elapsed_s,
                                    progress.sent, progress.running, progress.whole);
  if (rate_per_s > 0) out = absl::StrFormat("%.3f requests/s, %s", rate_per_s, out);
  if (progress.refused > 0) absl::StrAppend(&out, ", ", progress.refused, " refused");
  if (progress.failed > 0) absl::StrAppend(&out, ", ", progress.failed, " failed");
  return out;
}

absl::StatusOr<LoadResult> BenchRunner::RunOnce(const std::vector<TracedRequest>& trace,
                                                double rate_per_s, uint64_t step, int64_t max_bad) {
  WorkloadOptions workload_options = plan_.workload;
  LoadRunOptions run_options = plan_.run;
  if (step > 0) {
    workload_options.seed = MixBits(plan_.workload.seed + step);
    run_options.arrivals.seed = workload_options.seed;
  }
  if (rate_per_s > 0) run_options.arrivals.rate_per_s = rate_per_s;
  if (plan_.scales_trace) {
    run_options.trace_speed = TraceSpeedFor(trace, run_options.arrivals.rate_per_s);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Workload> workload, MakeWorkload(workload_options, trace));
  LoadRun run(run_options, *workload);
  const DriverOptions options = {
      .objectives = flags_.objectives,
      .on_progress = [&](const LoadProgress& p) { show_(ProgressLine(p, rate_per_s)); },
      .warmup = flags_.warmup,
      .max_bad = max_bad};
  DriverResult driven = driver_.Run(run, options);
  interrupted_ |= driven.interrupted;
  LoadResult result = {.settings = plan_.settings,
                       .conditions = {},
                       .seed = flags_.seed,
                       .records = std::move(driven.records),
                       .objectives = flags_.objectives,
                       .closed = plan_.run.arrivals.kind == ArrivalKind::kClosed,
                       .cpu_seconds = driven.cpu_seconds,
                       .wall_seconds = driven.wall_seconds,
                       .processors = ProcessorsOfThisProcess(),
                       .clipped = run.clipped(),
                       .rate_steps = {},
                       .max_rate = {}};
  const auto warm = std::min<int64_t>(flags_.warmup, static_cast<int64_t>(result.records.size()));
  result.records.erase(result.records.begin(), result.records.begin() + warm);
  if (driven.interrupted) result.conditions.push_back("The run was interrupted.");
  return result;
}

absl::StatusOr<LoadResult> BenchRunner::FindRate(const std::vector<TracedRequest>& trace) {
  RateSearch search(flags_.rate_per_s, kLowestShare * flags_.rate_per_s, flags_.max_rate_per_s);
  // A step that has more bad requests than this cannot hold, whatever the rest of it does.
  const int64_t planned = plan_.run.max_requests - flags_.warmup;
  const auto allowed_bad =
      static_cast<int64_t>((1 - kRateTargetShare) * static_cast<double>(planned) + 1e-9);
  LoadResult last;
  uint64_t step_number = 0;
  while (const std::optional<double> rate = search.NextRate()) {
    ASSIGN_OR_RETURN(last, RunOnce(trace, *rate, ++step_number, allowed_bad));
    if (interrupted_) break;
    const LoadSummary summary = SummaryOf(last);
    const RateStep step = {.requests = summary.requests(),
                           .good = summary.good,
                           .is_valid = summary.invalid_reasons.empty()};
    show_(absl::StrFormat("%.3f requests/s: %d of %d good%s%s\n", *rate, step.good, step.requests,
                          step.is_valid ? "" : ", not valid", step.holds() ? ", holds" : ""));
    search.OnStep(step);
  }
  last.rate_steps = search.steps();
  last.max_rate = search.result();
  last.max_rate_absent = interrupted_ ? "the search was interrupted" : "no rate held";
  if (search.reached_highest()) {
    last.conditions.push_back(absl::StrCat("The highest rate that --max-rate allows, ",
                                           flags_.max_rate_per_s,
                                           " requests/s, holds. A higher one may hold too."));
  }
  if (search.lost_to_lateness() > 0) {
    last.conditions.push_back(absl::StrCat("At ", search.lost_to_lateness(),
                                           " requests/s, the load generator was late in ",
                                           kMostLateRuns, " runs. This rate counts as not held."));
  }
  if (last.max_rate) {
    last.conditions.push_back(
        "The other figures are those of the run that confirmed the highest rate.");
  }
  return last;
}

absl::StatusOr<LoadResult> BenchRunner::Run(const std::vector<TracedRequest>& trace) {
  return flags_.find_rate ? FindRate(trace) : RunOnce(trace, 0, 0, -1);
}

}  // namespace baton
