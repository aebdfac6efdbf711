#include "cli/bench_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

// A parsed command line of `baton bench`.
class BenchFlagsOf {
 public:
  explicit BenchFlagsOf(std::vector<std::string> arguments) : line_("A test.", "baton") {
    CommandLine& command = line_.AddCommand("bench", "Measure");
    AddBenchFlags(command, flags);
    command.OnRun([this, &command] {
      plan = PlanBench(command, flags);
      return 0;
    });
    arguments.insert(arguments.begin(), {"baton", "bench"});
    std::vector<const char*> argv;
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    ::testing::internal::CaptureStderr();
    code = line_.Run(static_cast<int>(argv.size()), argv.data());
    error = ::testing::internal::GetCapturedStderr();
  }

  std::string fault() const { return std::string(plan.status().message()); }

  BenchFlags flags;
  int code = 0;
  std::string error;
  absl::StatusOr<BenchPlan> plan;

 private:
  CommandLine line_;
};

// A file with this text, while it lives.
class TraceFile {
 public:
  explicit TraceFile(const std::string& text)
      : path_(absl::StrCat(::testing::TempDir(), "bench_trace_", ++files_)) {
    std::ofstream(path_) << text;
  }
  ~TraceFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  static inline int files_ = 0;
  const std::string path_;
};

constexpr char kTarget[] = "--target=grpc://127.0.0.1:8090";

TEST(BenchFlags, DefaultsAreAHundredPoissonRequests) {
  const BenchFlagsOf bench({kTarget});
  ASSERT_TRUE(bench.plan.ok()) << bench.plan.status();
  EXPECT_EQ(bench.plan->run.arrivals.kind, ArrivalKind::kPoisson);
  EXPECT_EQ(bench.plan->run.max_requests, 100);
  EXPECT_FALSE(bench.plan->target.is_http);
  EXPECT_THAT(bench.plan->settings, Contains(Pair("workload", "synthetic")));
}

TEST(BenchFlags, TheSeedDecidesRequestsAndTimes) {
  const BenchFlagsOf bench({kTarget, "--seed=9"});
  ASSERT_TRUE(bench.plan.ok()) << bench.plan.status();
  EXPECT_EQ(bench.plan->workload.seed, 9u);
  EXPECT_EQ(bench.plan->run.arrivals.seed, 9u);
}

TEST(BenchFlags, ADurationReplacesTheNumberOfRequests) {
  const BenchFlagsOf bench({kTarget, "--duration-s=2.5"});
  ASSERT_TRUE(bench.plan.ok()) << bench.plan.status();
  EXPECT_EQ(bench.plan->run.max_requests, 0);
  EXPECT_EQ(bench.plan->run.duration_us, 2'500'000);
}

TEST(BenchFlags, WarmupIsSentBesidesTheRequests) {
  const BenchFlagsOf bench({kTarget, "--requests=10", "--warmup=3"});
  ASSERT_TRUE(bench.plan.ok()) << bench.plan.status();
  EXPECT_EQ(bench.plan->run.max_requests, 13);
}

TEST(BenchFlags, AFlagWithoutEffectIsNoted) {
  const BenchFlagsOf closed({kTarget, "--arrivals=closed", "--concurrency=2", "--rate=3",
                             "--turns=4", "--model=m", "--prefixes=2", "--prompt-tokens=8"});
  ASSERT_TRUE(closed.plan.ok()) << closed.plan.status();
  EXPECT_THAT(closed.plan->notes,
              ElementsAre("--rate has no effect: it is for arrivals with a rate",
                          "--prefixes has no effect: it is for --workload shared-prefix",
                          "--turns has no effect: it is for --workload chat",
                          "--model has no effect: it is for an http:// or https:// target"));
  const BenchFlagsOf traced({"--target=http://127.0.0.1:8080/v1", "--workload=azure", "--trace=x",
                             "--output-tokens=3", "--connections=2", "--model=m"});
  ASSERT_TRUE(traced.plan.ok()) << traced.plan.status();
  EXPECT_THAT(traced.plan->notes,
              ElementsAre("--output-tokens has no effect: it is for workloads without a trace",
                          "--connections has no effect: it is for a grpc:// target"));
}

TEST(BenchFlags, FlagsThatApplyAreNotNoted) {
  const BenchFlagsOf chat({kTarget, "--workload=chat", "--arrivals=gamma", "--burstiness=0.5",
                           "--rate=3", "--turns=4", "--system-tokens=5", "--connections=2"});
  ASSERT_TRUE(chat.plan.ok()) << chat.plan.status();
  EXPECT_THAT(chat.plan->notes, IsEmpty());
}

TEST(BenchFlags, ATraceIsPlayedAtItsOwnPaceUnlessARateIsGiven) {
  const BenchFlagsOf own({kTarget, "--workload=mooncake", "--trace=x"});
  ASSERT_TRUE(own.plan.ok()) << own.plan.status();
  EXPECT_EQ(own.plan->run.arrivals.kind, ArrivalKind::kTrace);
  EXPECT_EQ(own.plan->run.max_requests, 0);
  EXPECT_FALSE(own.plan->scales_trace);
  const BenchFlagsOf paced({kTarget, "--workload=azure", "--trace=x", "--rate=2"});
  ASSERT_TRUE(paced.plan.ok()) << paced.plan.status();
  EXPECT_TRUE(paced.plan->scales_trace);
  const BenchFlagsOf other({kTarget, "--workload=azure", "--trace=x", "--arrivals=gamma"});
  ASSERT_TRUE(other.plan.ok()) << other.plan.status();
  EXPECT_EQ(other.plan->run.arrivals.kind, ArrivalKind::kGamma);
}

TEST(BenchFlags, FlagsThatDoNotFitTogetherAreNamed) {
  const auto fault = [](std::vector<std::string> arguments) {
    arguments.push_back(kTarget);
    return BenchFlagsOf(std::move(arguments)).fault();
  };
  EXPECT_EQ(BenchFlagsOf({}).fault(), "--target is required");
  EXPECT_THAT(BenchFlagsOf({"--target=localhost:1"}).fault(),
              HasSubstr("--target: is \"localhost:1\"; must be grpc://HOST:PORT or http://"));
  EXPECT_THAT(fault({"--workload=mooncake"}), HasSubstr("need --trace"));
  EXPECT_THAT(fault({"--trace=x"}), HasSubstr("--trace is only for"));
  EXPECT_THAT(fault({"--arrivals=trace"}), HasSubstr("--arrivals trace needs a --workload"));
  EXPECT_THAT(fault({"--arrivals=closed"}), HasSubstr("needs --concurrency of at least 1"));
  EXPECT_THAT(fault({"--find-rate"}), HasSubstr("--find-rate needs --slo"));
  EXPECT_THAT(fault({"--find-rate", "--slo=ttft_ms=1", "--arrivals=closed", "--concurrency=1"}),
              HasSubstr("--arrivals closed has none"));
  EXPECT_THAT(fault({"--find-rate", "--slo=ttft_ms=1", "--rate=9", "--max-rate=5"}),
              HasSubstr("--rate is 9; must be at most --max-rate, which is 5"));
}

TEST(BenchFlags, WrongValuesAreUsageErrors) {
  const auto error = [](const std::string& argument) {
    const BenchFlagsOf bench({kTarget, argument});
    EXPECT_EQ(bench.code, 2) << argument;
    return bench.error;
  };
  EXPECT_THAT(error("--slo=ttft=5"), HasSubstr("--slo: \"ttft\" is no objective"));
  EXPECT_THAT(error("--rate=0"), HasSubstr("--rate: is 0; must be 0.0001 to"));
  EXPECT_THAT(error("--arrivals=never"), HasSubstr("--arrivals"));
  EXPECT_THAT(error("--workload=all"), HasSubstr("--workload"));
  EXPECT_THAT(error("--length-spread=2"), HasSubstr("must be 0 to 1"));
}

TEST(BenchFlags, SettingsNameWhatWasGiven) {
  const BenchFlagsOf bench({kTarget, "--slo=ttft_ms=50", "--arrivals=gamma", "--burstiness=0.5"});
  ASSERT_TRUE(bench.plan.ok()) << bench.plan.status();
  EXPECT_THAT(bench.plan->settings,
              AllOf(Contains(Pair("slo", "ttft_ms=50")), Contains(Pair("arrivals", "gamma")),
                    Contains(Pair("burstiness", "0.5")), Not(Contains(Pair("warmup", "0")))));
}

TEST(BenchFlags, ATraceFileIsRead) {
  const TraceFile trace(
      "{\"timestamp\":5,\"input_length\":9,\"output_length\":2,\"hash_ids\":[1]}\n\n"
      "{\"timestamp\":7,\"input_length\":8,\"output_length\":1,\"hash_ids\":[2]}\n");
  const auto all = ReadTraceFile(WorkloadKind::kMooncake, trace.path(), 0);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->size(), 2u);
  EXPECT_EQ(ReadTraceFile(WorkloadKind::kMooncake, trace.path(), 1)->size(), 1u);
  const TraceFile azure("TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03,5,6\r\n");
  const auto read = ReadTraceFile(WorkloadKind::kAzure, azure.path(), 0);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->front().output_tokens, 6);
}

TEST(BenchFlags, ABadTraceNamesFileLineFieldAndLimit) {
  const auto fault = [](WorkloadKind kind, const std::string& text) {
    const TraceFile trace(text);
    const auto read = ReadTraceFile(kind, trace.path(), 0);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(trace.path()));
    return std::string(read.status().message());
  };
  EXPECT_THAT(fault(WorkloadKind::kMooncake,
                    "{\"timestamp\":5,\"input_length\":9,\"output_length\":2,\"hash_ids\":[1]}\n"
                    "{\"timestamp\":5,\"input_length\":0,\"output_length\":2,\"hash_ids\":[1]}\n"),
              HasSubstr(", line 2: input_length is 0; must be a whole number from 1 to 16777216"));
  EXPECT_THAT(fault(WorkloadKind::kAzure, "a,b,c\n"), HasSubstr("line 1: the header is"));
  EXPECT_THAT(fault(WorkloadKind::kMooncake, ""), HasSubstr("has no requests"));
  EXPECT_THAT(std::string(ReadTraceFile(WorkloadKind::kAzure, "/nowhere", 0).status().message()),
              HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace baton
