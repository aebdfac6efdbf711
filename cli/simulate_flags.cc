#include "cli/simulate_flags.h"

#include <charconv>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/input_file.h"
#include "common/status_macros.h"
#include "router/router_options.h"

namespace baton {
namespace {

constexpr size_t kMaxProfileBytes = 16 << 20;
constexpr int64_t kMostPoolTokens = int64_t{1} << 30;
constexpr int64_t kMostKvTokens = int64_t{1} << 36;  // of all workers

constexpr char kSimulateHelp[] =
    "No request is sent and no model is loaded. The routers, their policy, and the scheduler and\n"
    "cache of every worker are those that serve; only steps and transfers are times from the\n"
    "profile. Figures mean what they mean for `baton bench`. The same seed gives the same output,\n"
    "except for events_per_s and decisions_per_s, which measure the simulator.\n"
    "\n"
    "With --role-planner advise, the output has the planner's target. apply needs --prefill-share\n"
    "above 0, because workers with both roles keep them.\n"
    "\n"
    "Measure a profile with `engine_bench --profile FILE`. docs/SIMULATE.md shows how to plan a "
    "fleet.";

void AddFleetFlags(CommandLine& command, SimulateFlags& flags) {
  constexpr char kGroup[] = "Fleet";
  SimulatedFleetOptions& fleet = flags.fleet;
  command
      .Add("--profile", &flags.profile_file,
           "Step times of a worker, from `engine_bench --profile FILE`. Without it: those of a "
           "computed accelerator with a model of 8 billion parameters")
      .Value("FILE")
      .Group(kGroup);
  command.Add("--workers", &fleet.workers, "Workers")
      .Group(kGroup)
      .Range(1, SimulatedFleetOptions::kMostWorkers)
      .ShowDefault();
  command.Add("--routers", &fleet.routers, "Routers, which share the requests equally")
      .Group(kGroup)
      .Range(1, SimulatedFleetOptions::kMostRouters)
      .ShowDefault();
  command
      .Add("--prefill-share", &flags.prefill_share,
           "Share of the workers that only prefill, from 0 to below 1; the others only decode. 0: "
           "every worker does both. best: search the share with the most good requests (--slo), or "
           "without objectives with the shortest answers")
      .Group(kGroup)
      .ShowDefault();
  RegisterRolePlannerSettings(fleet.roles, flags.role_planner);
  command.AddSettings(flags.role_planner, kGroup);
  command.Add("--kv-tokens", &fleet.worker.pool_tokens, "Tokens that the KV pool of a worker holds")
      .Group(kGroup)
      .Range(int64_t{256}, kMostPoolTokens)
      .ShowDefault();
  command.Add("--block-size", &fleet.worker.block_size, "Tokens of a KV block: a power of two")
      .Group(kGroup)
      .Range(1, 128)
      .ShowDefault();
  command
      .Add("--mixed-prompt-tokens", &fleet.worker.scheduler.mixed_prompt_tokens,
           "Prompt tokens at most in a step that also decodes. 0: as many as --step-tokens allows. "
           "Workers on CPUs have 128")
      .Group(kGroup)
      .Range(0, 1 << 16)
      .ShowDefault();
  command
      .Add("--step-tokens", &fleet.worker.scheduler.token_budget,
           "Tokens that a step computes at most")
      .Group(kGroup)
      .Range(1, 1 << 20)
      .ShowDefault();
  command
      .Add("--max-running", &fleet.worker.scheduler.max_running,
           "Sequences that a worker runs at once")
      .Group(kGroup)
      .Range(1, 1 << 16)
      .ShowDefault();
  command
      .Add("--transfer-gb-per-s", &flags.transfer_gb_per_s, "Bandwidth of KV between two workers")
      .Group(kGroup)
      .Range(1e-3, 1e5)
      .ShowDefault();
  command
      .Add("--transfer-latency-ms", &flags.transfer_latency_ms,
           "Fixed time in milliseconds of a hand-off or a pull, besides its bytes")
      .Group(kGroup)
      .Range(0.0, 60'000.0)
      .ShowDefault();
  command
      .Add("--context-length", &flags.load.workload.context_length,
           "Tokens that prompt and answer may have together; what is longer is clipped and "
           "counted. 0: as the profile says")
      .Group(kGroup)
      .Range(0, 1 << 24)
      .ShowDefault();
}

absl::StatusOr<int32_t> PrefillWorkersOf(const SimulateFlags& flags) {
  if (flags.prefill_share == "best") return 0;
  double share = -1;
  const char* const end = flags.prefill_share.data() + flags.prefill_share.size();
  const auto [stopped, error] = std::from_chars(flags.prefill_share.data(), end, share);
  if (error != std::errc() || stopped != end || !(share >= 0 && share < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--prefill-share is ", flags.prefill_share,
                     "; must be a number from 0 to below 1, or \"best\""));
  }
  const auto workers = static_cast<int32_t>(std::lround(share * flags.fleet.workers));
  if (share > 0 && (workers == 0 || workers == flags.fleet.workers)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--prefill-share ", flags.prefill_share, " of ", flags.fleet.workers,
                     " workers leaves no worker for one of the roles"));
  }
  return workers;
}

absl::Status CheckRoles(const SimulateFlags& flags, int32_t prefill_workers) {
  const bool applies = flags.fleet.roles.mode == RolePlannerMode::kApply;
  if (applies && prefill_workers == 0 && flags.prefill_share != "best") {
    return absl::InvalidArgumentError(
        "--role-planner apply needs --prefill-share above 0: it changes only workers that prefill "
        "or decode, and workers of both roles stay");
  }
  if (!flags.role_study) return absl::OkStatus();
  if (!applies) return absl::InvalidArgumentError("--role-study needs --role-planner apply");
  if (flags.load.workload.kind != WorkloadKind::kSwing) {
    return absl::InvalidArgumentError("--role-study needs --workload swing");
  }
  if (flags.load.objectives.empty()) return absl::InvalidArgumentError("--role-study needs --slo");
  if (flags.load.find_rate) {
    return absl::InvalidArgumentError("--role-study and --find-rate exclude each other");
  }
  return absl::OkStatus();
}

absl::Status CheckFleet(const SimulateFlags& flags) {
  const SimulatedFleetOptions& fleet = flags.fleet;
  const int32_t block_size = fleet.worker.block_size;
  if ((block_size & (block_size - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--block-size is ", block_size, "; must be a power of two"));
  }
  const int64_t tokens = fleet.worker.pool_tokens * fleet.workers;
  if (tokens > kMostKvTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kv-tokens of all workers are ", tokens, ", the limit is ", kMostKvTokens));
  }
  if (flags.oracle > 0 && flags.load.objectives.empty()) {
    return absl::InvalidArgumentError("--oracle needs --slo");
  }
  if (flags.oracle > 0 && flags.load.find_rate) {
    return absl::InvalidArgumentError(
        "--oracle and --find-rate exclude each other; run the found --rate with --oracle");
  }
  return absl::OkStatus();
}

void AddSettingsOf(const CommandLine& command, const SimulateFlags& flags,
                   const EngineProfile& profile, SimulatePlan& plan) {
  auto& settings = plan.load.settings;
  const auto add = [&settings](const char* name, auto value) {
    settings.emplace_back(name, absl::StrCat(value));
  };
  add("model", profile.model);
  add("device", profile.device);
  add("workers", plan.options.fleet.workers);
  add("routers", plan.options.fleet.routers);
  add("prefill-share", flags.prefill_share);
  if (flags.fleet.roles.mode != RolePlannerMode::kOff) {
    for (const Setting& setting : flags.role_planner.settings()) {
      settings.emplace_back(setting.name, setting.get());
    }
  }
  add("routing-policy", plan.options.fleet.routing.policy);
  add("routing-candidates", plan.options.fleet.routing.candidates);
  for (const char* name : {"--kv-tokens", "--block-size", "--step-tokens", "--max-running"}) {
    if (!command.IsGiven(name)) continue;
    const std::string_view what = std::string_view(name).substr(2);
    const SimulatedWorkerOptions& worker = plan.options.fleet.worker;
    const int64_t value = what == "kv-tokens"     ? worker.pool_tokens
                          : what == "block-size"  ? worker.block_size
                          : what == "step-tokens" ? worker.scheduler.token_budget
                                                  : worker.scheduler.max_running;
    settings.emplace_back(what, absl::StrCat(value));
  }
}

}  // namespace

void AddSimulateFlags(CommandLine& command, SimulateFlags& flags) {
  AddFleetFlags(command, flags);
  AddLoadFlags(command, flags.load);
  AddWorkloadFlags(command, flags.load);
  AddReportFlags(command, flags.load);
  command
      .Add(
          "--oracle", &flags.oracle,
          "Also search so many placements that know arrivals, lengths and speeds, each in a run of "
          "its own. The best one gives goodput_to_oracle. 0: none")
      .Group("Result")
      .Range(0, 1'000'000)
      .ShowDefault();
  command
      .AddFlag("--role-study", &flags.role_study,
               "With --role-planner apply and --workload swing: also play the load under every "
               "fixed split, and under one that changes at each swing. Gives planner_to_best_fixed "
               "and planner_to_oracle")
      .Group("Result");
  RegisterRoutingSettings(flags.fleet.routing, flags.routing);
  command.AddSettings(flags.routing, "Routing");
  command.AddHelpText(kSimulateHelp);
}

absl::StatusOr<SimulatePlan> PlanSimulation(const CommandLine& command, const SimulateFlags& flags,
                                            const EngineProfile& profile) {
  SimulatePlan plan;
  RETURN_IF_ERROR(CheckFleet(flags));
  RETURN_IF_ERROR(PlanLoad(command, flags.load, plan.load));
  SimulationOptions& options = plan.options;
  options.fleet = flags.fleet;
  ASSIGN_OR_RETURN(options.fleet.prefill_workers, PrefillWorkersOf(flags));
  RETURN_IF_ERROR(CheckRoles(flags, options.fleet.prefill_workers));
  plan.finds_share = flags.prefill_share == "best";
  options.fleet.bytes_per_us = flags.transfer_gb_per_s * 1000;
  options.fleet.call_us = std::llround(flags.transfer_latency_ms * 1000);
  SchedulerOptions& scheduler = options.fleet.worker.scheduler;
  scheduler.max_chunk_tokens = scheduler.token_budget;
  options.workload = plan.load.workload;
  if (options.workload.context_length == 0) {
    options.workload.context_length = static_cast<int32_t>(profile.max_context);
  }
  options.run = plan.load.run;
  options.scales_trace = plan.load.scales_trace;
  options.warmup = flags.load.warmup;
  options.objectives = flags.load.objectives;
  AddSettingsOf(command, flags, profile, plan);
  return plan;
}

absl::StatusOr<EngineProfile> ReadProfile(const std::string& path) {
  if (path.empty()) return ComputedProfile();
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  ASSIGN_OR_RETURN(const std::string text, file.ReadAll(kMaxProfileBytes));
  absl::StatusOr<EngineProfile> profile = ParseProfile(text);
  if (profile.ok()) return profile;
  return absl::Status(profile.status().code(),
                      absl::StrCat(path, ": ", std::string(profile.status().message())));
}

}  // namespace baton
