#include "cli/simulate_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"

namespace baton {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;

// A parsed command line of `baton simulate`.
class SimulateFlagsOf {
 public:
  explicit SimulateFlagsOf(std::vector<std::string> arguments) : line_("A test.", "baton") {
    CommandLine& command = line_.AddCommand("simulate", "Simulate");
    AddSimulateFlags(command, flags);
    command.OnRun([this, &command] {
      plan = PlanSimulation(command, flags, ComputedProfile());
      return 0;
    });
    arguments.insert(arguments.begin(), {"baton", "simulate"});
    std::vector<const char*> argv;
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    ::testing::internal::CaptureStderr();
    code = line_.Run(static_cast<int>(argv.size()), argv.data());
    error = ::testing::internal::GetCapturedStderr();
  }
  std::string fault() const { return std::string(plan.status().message()); }

  SimulateFlags flags;
  int code = 0;
  std::string error;
  absl::StatusOr<SimulatePlan> plan;

 private:
  CommandLine line_;
};

// A file with this text, while it lives.
class ProfileFile {
 public:
  explicit ProfileFile(const std::string& text)
      : path_(absl::StrCat(::testing::TempDir(), "profile_", ++files_)) {
    std::ofstream(path_) << text;
  }
  ~ProfileFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  static inline int files_ = 0;
  const std::string path_;
};

TEST(SimulateFlags, WithoutFlagsTheyPlanTheDefaults) {
  const SimulateFlagsOf flags({});
  ASSERT_TRUE(flags.plan.ok()) << flags.plan.status();
  const SimulationOptions& options = flags.plan->options;
  EXPECT_EQ(options.fleet.workers, 16);
  EXPECT_EQ(options.fleet.prefill_workers, 0);
  EXPECT_EQ(options.fleet.routing.policy, "kv-aware");
  EXPECT_EQ(options.workload.context_length, ComputedProfile().max_context);
  EXPECT_FALSE(flags.plan->finds_share);
}

TEST(SimulateFlags, TheyDescribeTheFleetAndTheLoad) {
  const SimulateFlagsOf flags({"--workers",
                               "1000",
                               "--routers",
                               "4",
                               "--prefill-share",
                               "0.25",
                               "--kv-tokens",
                               "65536",
                               "--block-size",
                               "128",
                               "--step-tokens",
                               "512",
                               "--max-running",
                               "32",
                               "--transfer-gb-per-s",
                               "2",
                               "--transfer-latency-ms",
                               "0.5",
                               "--routing-candidates",
                               "0",
                               "--routing-policy",
                               "round-robin",
                               "--workload",
                               "chat",
                               "--rate",
                               "7",
                               "--seed",
                               "9",
                               "--slo",
                               "ttft_ms=500",
                               "--context-length",
                               "4096",
                               "--oracle",
                               "10"});
  ASSERT_TRUE(flags.plan.ok()) << flags.error << flags.plan.status();
  const SimulatedFleetOptions& fleet = flags.plan->options.fleet;
  EXPECT_EQ(fleet.workers, 1000);
  EXPECT_EQ(fleet.routers, 4);
  EXPECT_EQ(fleet.prefill_workers, 250);
  EXPECT_EQ(fleet.worker.pool_tokens, 65'536);
  EXPECT_EQ(fleet.worker.scheduler.max_chunk_tokens, 512);
  EXPECT_EQ(fleet.bytes_per_us, 2000);
  EXPECT_EQ(fleet.call_us, 500);
  EXPECT_EQ(fleet.routing.candidates, 0);
  EXPECT_EQ(fleet.routing.policy, "round-robin");
  EXPECT_EQ(flags.plan->options.workload.kind, WorkloadKind::kChat);
  EXPECT_EQ(flags.plan->options.workload.seed, 9u);
  EXPECT_EQ(flags.plan->options.run.arrivals.rate_per_s, 7);
  EXPECT_EQ(flags.plan->options.workload.context_length, 4096);
  EXPECT_THAT(flags.plan->load.settings, Contains(Pair("workers", "1000")));
  EXPECT_THAT(flags.plan->load.settings, Contains(Pair("target", "simulated")));
  EXPECT_THAT(flags.plan->load.settings, Contains(Pair("kv-tokens", "65536")));
}

TEST(SimulateFlags, BestSearchesTheShare) {
  const SimulateFlagsOf flags({"--prefill-share", "best"});
  ASSERT_TRUE(flags.plan.ok());
  EXPECT_TRUE(flags.plan->finds_share);
}

TEST(SimulateFlags, WhatDoesNotFitTogetherIsAnErrorThatNamesTheFlags) {
  EXPECT_THAT(SimulateFlagsOf({"--prefill-share", "1"}).fault(),
              HasSubstr("--prefill-share is 1; must be a number from 0 to below 1, or \"best\""));
  EXPECT_THAT(SimulateFlagsOf({"--prefill-share", "few"}).fault(), HasSubstr("is few"));
  EXPECT_THAT(SimulateFlagsOf({"--prefill-share", "nan"}).fault(), HasSubstr("is nan"));
  EXPECT_THAT(SimulateFlagsOf({"--workers", "2", "--prefill-share", "0.1"}).fault(),
              HasSubstr("of 2 workers leaves no worker for one of the roles"));
  EXPECT_THAT(SimulateFlagsOf({"--block-size", "48"}).fault(), HasSubstr("a power of two"));
  EXPECT_THAT(SimulateFlagsOf({"--oracle", "5"}).fault(), HasSubstr("--oracle needs --slo"));
  EXPECT_THAT(SimulateFlagsOf({"--oracle", "5", "--slo", "ttft_ms=1", "--find-rate"}).fault(),
              HasSubstr("exclude each other"));
  EXPECT_THAT(SimulateFlagsOf({"--workload", "azure"}).fault(), HasSubstr("need --trace"));
  EXPECT_EQ(SimulateFlagsOf({"--workers", "10001"}).code, 2);
}

TEST(SimulateFlags, ThePlannerOfRolesNeedsWorkersThatItMayChange) {
  const std::vector<std::string> apply = {"--role-planner", "apply"};
  const auto with = [](std::vector<std::string> flags, const std::vector<std::string>& more) {
    flags.insert(flags.end(), more.begin(), more.end());
    return SimulateFlagsOf(flags);
  };
  EXPECT_EQ(SimulateFlagsOf({}).plan->options.fleet.roles.mode, RolePlannerMode::kOff);
  EXPECT_THAT(with(apply, {}).fault(), HasSubstr("needs --prefill-share above 0"));
  EXPECT_THAT(with(apply, {"--prefill-share", "0.0"}).fault(), HasSubstr("above 0"));
  EXPECT_TRUE(with(apply, {"--prefill-share", "best"}).plan.ok());
  const auto good = with(apply, {"--prefill-share", "0.5", "--role-planner-period-ms", "2000"});
  ASSERT_TRUE(good.plan.ok()) << good.plan.status();
  EXPECT_EQ(good.plan->options.fleet.roles.mode, RolePlannerMode::kApply);
  EXPECT_EQ(good.plan->options.fleet.roles.period_ms, 2000);
  EXPECT_THAT(good.plan->load.settings, Contains(Pair("role-planner", "apply")));
  EXPECT_EQ(SimulateFlagsOf({"--role-planner", "soon"}).code, 2);
  EXPECT_EQ(SimulateFlagsOf({"--role-planner-period-ms", "999"}).code, 2);
  EXPECT_EQ(SimulateFlagsOf({"--role-planner-period-ms", "1200001"}).code, 2);
  EXPECT_EQ(SimulateFlagsOf({"--swing-ratio", "0.5"}).code, 2);
  EXPECT_EQ(SimulateFlagsOf({"--swing-ratio", "nan"}).code, 2);
  EXPECT_EQ(SimulateFlagsOf({"--swing-period-s", "0"}).code, 2);
}

TEST(SimulateFlags, AStudyOfRolesNeedsAPlannerASwingAndObjectives) {
  std::vector<std::string> flags = {"--role-study"};
  EXPECT_THAT(SimulateFlagsOf(flags).fault(), HasSubstr("needs --role-planner apply"));
  flags.insert(flags.end(), {"--role-planner", "apply", "--prefill-share", "0.5"});
  EXPECT_THAT(SimulateFlagsOf(flags).fault(), HasSubstr("needs --workload swing"));
  flags.insert(flags.end(), {"--workload", "swing"});
  EXPECT_THAT(SimulateFlagsOf(flags).fault(), HasSubstr("needs --slo"));
  flags.insert(flags.end(), {"--slo", "ttft_ms=500"});
  EXPECT_TRUE(SimulateFlagsOf(flags).plan.ok());
  flags.insert(flags.end(), {"--find-rate"});
  EXPECT_THAT(SimulateFlagsOf(flags).fault(), HasSubstr("exclude each other"));
}

TEST(SimulateFlags, ProfilesAreReadFromFilesWithErrorsThatNameThem) {
  const ProfileFile good(ProfileText(ComputedProfile()));
  const absl::StatusOr<EngineProfile> read = ReadProfile(good.path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->kv_bytes_per_token, ComputedProfile().kv_bytes_per_token);
  const ProfileFile bad("{\"format\": 7}");
  const std::string fault(ReadProfile(bad.path()).status().message());
  EXPECT_THAT(fault, HasSubstr(bad.path()));
  EXPECT_THAT(fault, HasSubstr("format is 7; must be a text"));
  EXPECT_FALSE(ReadProfile(bad.path() + ".missing").ok());
  EXPECT_EQ(ReadProfile("")->model, ComputedProfile().model);
}

// Output of the whole command, without the two figures that measure the simulator.
std::string OutputOf(std::vector<std::string> arguments) {
  CommandLine line("A test.", "baton");
  AddSimulateCommand(line);
  arguments.insert(arguments.begin(), {"baton", "simulate"});
  std::vector<const char*> argv;
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(line.Run(static_cast<int>(argv.size()), argv.data()), 0);
  std::string out;
  std::string text = ::testing::internal::GetCapturedStdout();
  for (const char* name : {"events_per_s", "decisions_per_s"}) {
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
      size_t end = text.find_first_of("}\n", at);
      text.erase(at, end - at);
    }
  }
  return text;
}

TEST(SimulateCommand, PrintsTheFiguresOfALoadTestAndTheSameOnesForTheSameSeed) {
  const std::vector<std::string> arguments = {
      "--workers",       "4",    "--rate",      "20",
      "--requests",      "200",  "--slo",       "ttft_ms=200,itl_ms=50",
      "--prefill-share", "best", "--kv-tokens", "65536"};
  const std::string output = OutputOf(arguments);
  EXPECT_EQ(OutputOf(arguments), output);
  for (const char* part : {"\"bench\":\"simulate\"", "\"ttft_p50_ms\"", "\"goodput_share\"",
                           "\"requests_ok\"", "\"prefill_workers\"", "\"goodput_to_oracle\"",
                           "not measured: needs --oracle", "No machine was measured"}) {
    EXPECT_THAT(output, HasSubstr(part));
  }
}

TEST(SimulateCommand, FindsTheHighestRate) {
  const std::string output = OutputOf({"--workers", "2", "--rate", "10", "--slo", "ttft_ms=500",
                                       "--find-rate", "--kv-tokens", "65536"});
  EXPECT_THAT(output, HasSubstr("highest rate that holds"));
}

}  // namespace
}  // namespace baton
