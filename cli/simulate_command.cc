// `baton simulate`: a fleet in simulated time, to plan capacity without machines.

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/bench_files.h"
#include "cli/bench_notes.h"
#include "cli/commands.h"
#include "cli/job_progress.h"
#include "cli/outcome.h"
#include "cli/simulate_flags.h"
#include "cli/terminal.h"
#include "common/clock.h"
#include "common/exit_code.h"
#include "common/status_macros.h"
#include "loadtest/load_report.h"
#include "loadtest/role_study.h"

namespace baton {
namespace {

// The search of a rate goes down to this share of its first rate, as that of `baton bench`.
constexpr double kLowestRateShare = 0.01;

// Runs what the flags ask for, and shows progress on standard error.
class SimulateRunner {
 public:
  SimulateRunner(const SimulateFlags& flags, SimulatePlan plan, const EngineProfile& profile,
                 std::vector<TracedRequest> trace)
      : flags_(flags),
        plan_(std::move(plan)),
        profile_(profile),
        simulation_(plan_.options, profile, std::move(trace), &clock_),
        display_(stderr, TakesEscapes(STDERR_FILENO)) {}

  absl::StatusOr<LoadResult> Run() {
    LoadResult result = {.bench = "simulate",
                         .settings = plan_.load.settings,
                         .conditions = Conditions(),
                         .seed = flags_.load.seed,
                         .records = {},
                         .objectives = flags_.load.objectives,
                         .closed = plan_.load.run.arrivals.kind == ArrivalKind::kClosed,
                         .clipped = {},
                         .rate_steps = {},
                         .max_rate = {}};
    if (plan_.finds_share) RETURN_IF_ERROR(FindShare());
    SimulatedRun run;
    if (flags_.load.find_rate) {
      ASSIGN_OR_RETURN(run, FindRate(result));
    } else {
      display_.Show("simulating");
      ASSIGN_OR_RETURN(run, simulation_.Play());
    }
    result.more_figures = FiguresOf(run, simulation_.options().fleet);
    RETURN_IF_ERROR(AskOracle(result));
    RETURN_IF_ERROR(StudyRolesFor(result));
    result.records = std::move(run.records);
    result.clipped = run.clipped;
    display_.Clear();
    return result;
  }

 private:
  std::vector<std::string> Conditions() const {
    std::vector<std::string> out = {
        "Simulated: no request was sent. Steps and transfers take the times of the profile, and "
        "nothing fails."};
    if (flags_.profile_file.empty()) {
      out.push_back("The step times are those of a computed accelerator. No machine was measured.");
    }
    if (flags_.load.workload.kind == WorkloadKind::kChunks) {
      out.push_back("A prompt in parts counts as one prompt; its chunks are no prompt chunks.");
    }
    return out;
  }

  void ShowStep(const std::string& line) {
    display_.Clear();
    std::fprintf(stderr, "%s\n", line.c_str());
  }

  absl::Status FindShare() {
    const auto show = [this](const TriedShare& share) {
      std::string line = absl::StrFormat(
          "%d of %d workers prefill: mean TTFT %.1f ms, mean answer %.1f ms", share.prefill_workers,
          plan_.options.fleet.workers, share.mean_ttft_ms, share.mean_e2e_ms);
      if (!flags_.load.objectives.empty()) {
        absl::StrAppendFormat(&line, ", %d of %d good", share.good, share.requests);
      }
      ShowStep(line);
    };
    ASSIGN_OR_RETURN(const TriedShare best, simulation_.FindShare(show));
    simulation_.set_prefill_workers(best.prefill_workers);
    return absl::OkStatus();
  }

  absl::StatusOr<SimulatedRun> FindRate(LoadResult& result) {
    const double first = flags_.load.rate_per_s;
    ASSIGN_OR_RETURN(Simulation::FoundRate found,
                     simulation_.FindRate(kLowestRateShare * first, flags_.load.max_rate_per_s,
                                          [this](double rate, const RateStep& step) {
                                            ShowStep(absl::StrFormat(
                                                "%.3f requests/s: %d of %d good%s", rate, step.good,
                                                step.requests, step.holds() ? ", holds" : ""));
                                          }));
    result.rate_steps = std::move(found.steps);
    result.max_rate = found.result;
    result.max_rate_absent = "no rate held";
    if (found.reached_highest) {
      result.conditions.push_back(absl::StrCat("The highest rate that --max-rate allows, ",
                                               flags_.load.max_rate_per_s,
                                               " requests/s, holds. A higher one may hold too."));
    }
    return std::move(found.run);
  }

  absl::Status AskOracle(LoadResult& result) {
    std::optional<Simulation::OracleFigures> figures;
    if (flags_.oracle > 0) {
      ASSIGN_OR_RETURN(figures,
                       simulation_.AskOracle(flags_.oracle, [this](int32_t done, int64_t best) {
                         display_.Show(absl::StrFormat("oracle: %d of %d searches, best %d good",
                                                       done, flags_.oracle, best));
                       }));
    }
    for (MoreFigure& figure : FiguresOf(figures, "needs --oracle")) {
      result.more_figures.push_back(std::move(figure));
    }
    return absl::OkStatus();
  }

  absl::Status StudyRolesFor(LoadResult& result) {
    if (!flags_.role_study) return absl::OkStatus();
    ASSIGN_OR_RETURN(const RoleStudy study,
                     StudyRoles(simulation_.options(), profile_,
                                [this](const std::string& line) { ShowStep(line); }));
    for (MoreFigure& figure : FiguresOf(study)) result.more_figures.push_back(std::move(figure));
    return absl::OkStatus();
  }

  const SimulateFlags& flags_;
  const SimulatePlan plan_;
  const SystemClock clock_;
  const EngineProfile profile_;
  Simulation simulation_;
  ProgressDisplay display_;
};

int Simulate(const CommandLine& command, const SimulateFlags& flags) {
  const absl::StatusOr<EngineProfile> profile = ReadProfile(flags.profile_file);
  if (!profile.ok()) return ReportError(profile.status());
  absl::StatusOr<SimulatePlan> plan = PlanSimulation(command, flags, *profile);
  if (!plan.ok()) return ReportError(plan.status());
  PrintNotes(plan->load.notes);
  std::vector<TracedRequest> trace;
  if (!flags.load.trace.empty()) {
    absl::StatusOr<std::vector<TracedRequest>> read =
        ReadTraceFile(plan->load.workload.kind, flags.load.trace, plan->load.run.max_requests);
    if (!read.ok()) return ReportError(read.status());
    trace = *std::move(read);
  }
  absl::StatusOr<BenchFiles> files =
      BenchFiles::Create(flags.load.json_file, flags.load.html_file, flags.load.records_file);
  if (!files.ok()) return ReportError(files.status());
  SimulateRunner runner(flags, *std::move(plan), *profile, std::move(trace));
  const absl::StatusOr<LoadResult> result = runner.Run();
  if (!result.ok()) return ReportError(result.status());
  const LoadSummary summary = SummaryOf(*result);
  const absl::Status written = files->Write(*result, summary);
  if (!written.ok()) ReportError(written);
  const bool printed = PrintResult(
      absl::StrCat(LoadTable(*result, summary), JsonText(FiguresJson(*result, summary)), "\n"));
  if (!written.ok() || !printed || summary.whole == 0) return kExitFailed;
  const bool valid = summary.invalid_reasons.empty();
  return flags.load.strict && !valid ? kExitFailed : kExitSuccess;
}

}  // namespace

void AddSimulateCommand(CommandLine& line) {
  CommandLine& command = line.AddCommand(
      "simulate", "Plan capacity: a load test of a fleet in simulated time, without machines");
  auto flags = std::make_shared<SimulateFlags>();
  AddSimulateFlags(command, *flags);
  command.OnRun([&command, flags] { return Simulate(command, *flags); });
}

}  // namespace baton
