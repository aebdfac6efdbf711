#include "cli/job_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/cli/full_standard_output.h"
#include "tests/cli/text_file.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

// Answers every job with its prompt, or with an error when the prompt names one.
class EchoRunner final : public JobRunner {
 public:
  absl::StatusOr<std::vector<JobResult>> Run(
      const Job& job, const std::function<void(std::string_view)>& on_text) override {
    if (job.prompt == "invalid") return absl::InvalidArgumentError("no such thing");
    if (job.prompt == "unavailable") return absl::UnavailableError("nobody there");
    if (job.prompt == "gone") return NotBegun(absl::UnavailableError("no router"));
    if (job.prompt == "interrupted") return NotBegun(absl::CancelledError("interrupted"));
    if (on_text && job.n == 1) on_text(*job.prompt);
    std::vector<JobResult> results(static_cast<size_t>(job.n));
    for (int32_t i = 0; i < job.n; ++i) {
      results[i].text = *job.prompt;
      results[i].finish_reason = "stop";
      results[i].completion_tokens = 3;
      if (job.n > 1) results[i].choice = i;
    }
    return results;
  }
  void Interrupt() override {}
};

int RunOne(const std::string& prompt, std::string& output) {
  EchoRunner runner;
  Job job;
  job.id = "it";
  job.prompt = prompt;
  ::testing::internal::CaptureStdout();
  const int code = RunOneJob(runner, job, {.concurrency = 1, .json = true});
  output = ::testing::internal::GetCapturedStdout();
  return code;
}

struct Ran {
  int code = 0;
  std::string output;
  std::string error;
};

Ran RunAll(const std::string& lines, const RunJobsOptions& options, const Job& defaults = {},
           const AnsweredJobs* answered = nullptr) {
  EchoRunner runner;
  InputFile input = TextFile(lines);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Ran ran;
  ran.code = RunJobLines(runner, input, options, defaults, answered);
  ran.output = ::testing::internal::GetCapturedStdout();
  ran.error = ::testing::internal::GetCapturedStderr();
  return ran;
}

int RunLines(const std::string& lines, std::string& output) {
  const Ran ran = RunAll(lines, {.concurrency = 2, .json = true});
  output = ran.output;
  return ran.code;
}

TEST(JobRunner, TheExitCodeOfOneJobNamesTheFailure) {
  std::string output;
  EXPECT_EQ(RunOne("hello", output), 0);
  EXPECT_THAT(output, HasSubstr("hello"));
  EXPECT_EQ(RunOne("invalid", output), 2);
  EXPECT_THAT(output, HasSubstr("INVALID_ARGUMENT"));
  EXPECT_EQ(RunOne("unavailable", output), 1);
}

TEST(JobRunner, EveryChoiceHasItsOwnLine) {
  std::string output;
  EXPECT_EQ(RunLines(R"({"id":"a","prompt":"hello","n":3})", output), 0);
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 3);
  EXPECT_THAT(output, AllOf(HasSubstr(R"("id":"a","choice":0)"), HasSubstr(R"("choice":2)")));
  EXPECT_EQ(RunLines(R"({"id":"a","prompt":"hello"})", output), 0);
  EXPECT_THAT(output, ::testing::Not(HasSubstr("choice")));
}

TEST(JobRunner, TextOutputHasATitleForEachChoice) {
  EchoRunner runner;
  Job job;
  job.id = "it";
  job.prompt = "hello";
  job.n = 2;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunOneJob(runner, job, {.concurrency = 1, .json = false}), 0);
  ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(
      ::testing::internal::GetCapturedStdout(),
      AllOf(HasSubstr("=== choice 0 (stop)"), HasSubstr("=== choice 1 (stop) ===\nhello\n")));
}

// Runner whose jobs end in the way that their prompt names.
class EndingRunner final : public JobRunner {
 public:
  absl::StatusOr<std::vector<JobResult>> Run(
      const Job& job, const std::function<void(std::string_view)>& on_text) override {
    if (job.prompt != "silent") on_text("some text");
    if (job.prompt == "late" || job.prompt == "silent") return absl::DeadlineExceededError("late");
    std::vector<JobResult> results(static_cast<size_t>(job.n));
    for (int32_t i = 0; i < job.n; ++i) {
      if (job.n > 1) results[i].choice = i;
      results[i].finish_reason = i == 0 ? "length" : "stop";
      results[i].completion_tokens = 1;
      results[i].token_ids = {5};
      if (job.sampling.logprobs) results[i].logprobs = {{.logprob = -0.5f, .top = {}}};
      results[i].ledger = {{"total_us", 7}};
    }
    return results;
  }
  absl::StatusOr<std::vector<std::string>> Pieces(const std::vector<TokenId>& tokens) override {
    return std::vector<std::string>(tokens.size(), "piece");
  }
  void Interrupt() override {}
};

// Returns the standard error of one job in text form.
std::string Notes(Job job, bool no_ledger, int expected_code = 0) {
  EndingRunner runner;
  job.id = "it";
  if (!job.prompt) job.prompt = "";
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunOneJob(runner, job, {.concurrency = 1, .json = false, .no_ledger = no_ledger}),
            expected_code);
  ::testing::internal::GetCapturedStdout();
  return ::testing::internal::GetCapturedStderr();
}

TEST(JobRunner, NotesSayWhyAnAnswerStopped) {
  Job job;
  job.sampling.max_tokens = 1;
  EXPECT_EQ(Notes(job, true), "(stopped: 1 token, --max-tokens)\n");
  job.sampling.logprobs = 0;
  EXPECT_THAT(Notes(job, true), HasSubstr("\"piece\""));
}

TEST(JobRunner, AnAnswerThatEndsEarlyHasOneLineForTheReason) {
  Job job;
  job.prompt = "late";
  EXPECT_EQ(Notes(job, true, 1), "(stopped: the deadline passed, --timeout-ms)\n");
  job.prompt = "silent";
  EXPECT_EQ(Notes(job, true, 1), "baton: DEADLINE_EXCEEDED: late\n");
}

TEST(JobRunner, SeveralChoicesHaveOneLedgerOrNone) {
  Job job;
  job.n = 3;
  job.sampling.max_tokens = 1;
  const std::string notes = Notes(job, false);
  EXPECT_THAT(notes, HasSubstr("choice 0 (stopped: 1 token,"));
  EXPECT_THAT(notes, HasSubstr("3 tokens generated"));
  const size_t first = notes.find("latency ledger");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(notes.find("latency ledger", first + 1), std::string::npos);
  EXPECT_THAT(Notes(job, true), Not(HasSubstr("ledger")));
}

TEST(JobRunner, OneBadLineOfManyMakesTheExitCodeOne) {
  std::string output;
  EXPECT_EQ(RunLines("{\"prompt\":\"a\"}\n\n{\"prompt\":\"b\"}", output), 0);
  EXPECT_THAT(output, AllOf(HasSubstr("\"id\":\"1\""), HasSubstr("\"id\":\"3\"")));
  for (const char* bad : {"{\"prompt\":\"invalid\"}", "{\"prompt\":\"unavailable\"}", "[]"}) {
    EXPECT_EQ(RunLines("{\"prompt\":\"good\"}\n" + std::string(bad), output), 1) << bad;
    EXPECT_THAT(output, AllOf(HasSubstr("good"), HasSubstr("error"))) << bad;
  }
}

TEST(JobRunner, AReadFailureIsNotTheEndOfTheJobs) {
  EchoRunner runner;
  InputFile input(std::fopen("/", "r"), "folder");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunJobLines(runner, input, {.concurrency = 2, .json = true}), 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              StartsWith("baton: UNAVAILABLE: cannot read folder: Is a directory\n0 jobs: "));
}

TEST(JobRunner, StartsNoJobAfterAFailedWrite) {
  EchoRunner runner;
  InputFile input = TextFile("{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n{\"prompt\":\"c\"}\n");
  {
    const FullStandardOutput full;
    ::testing::internal::CaptureStderr();
    RunJobLines(runner, input, {.concurrency = 1, .json = true});
  }
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      AllOf(StartsWith("baton: UNAVAILABLE: cannot write results: No space left on device\n"),
            HasSubstr("3 jobs: 1 answered, 2 not begun; ")));
  std::string line;
  EXPECT_EQ(input.ReadLine(100, line), LineRead::kLine);
  EXPECT_EQ(line, "{\"prompt\":\"b\"}");
}

TEST(JobRunner, ALineOverTheLimitHasItsOwnError) {
  std::string output;
  const std::string spaces(kMaxJobLineBytes + 1, ' ');
  EXPECT_EQ(RunLines("{\"prompt\":\"a\"" + spaces + "}\n{\"prompt\":\"b\"}", output), 1);
  EXPECT_THAT(output, HasSubstr("line 1: it has more than 33554432 bytes"));
  EXPECT_THAT(output,
              HasSubstr("\"id\":\"2\",\"prompt_token_ids\":[],\"token_ids\":[],\"text\":\"b\""));
}

TEST(JobRunner, TheLastLineHasTheTotals) {
  const Ran ran = RunAll("{\"prompt\":\"a\"}\n[]\n\n{\"prompt\":\"b\",\"n\":2}\n",
                         {.concurrency = 2, .json = true});
  EXPECT_THAT(ran.error, MatchesRegex("3 jobs: 2 answered, 1 failed; 9 tokens in .*tokens/s\n"));
}

TEST(JobRunner, AJobThatNeverBeganHasNoResultAndEndsTheRun) {
  const std::string lines =
      "{\"prompt\":\"a\"}\n{\"prompt\":\"gone\"}\n{\"prompt\":\"b\"}\n{\"prompt\":\"c\"}\n";
  const Ran gone = RunAll(lines, {.concurrency = 1, .json = true});
  EXPECT_EQ(gone.code, 1);
  EXPECT_EQ(std::count(gone.output.begin(), gone.output.end(), '\n'), 1);
  EXPECT_THAT(gone.output, HasSubstr("\"text\":\"a\""));
  EXPECT_THAT(gone.error,
              StartsWith("baton: UNAVAILABLE: no router\n4 jobs: 1 answered, 3 not begun; "));
  const Ran interrupted =
      RunAll("{\"prompt\":\"interrupted\"}\n{\"prompt\":\"b\"}\n", {.concurrency = 1});
  EXPECT_EQ(interrupted.output, "");
  EXPECT_THAT(interrupted.error, StartsWith("2 jobs: 0 answered, 2 not begun; "));
}

TEST(JobRunner, TheFlagsAreTheDefaultsOfTheJobs) {
  Job defaults;
  defaults.n = 2;
  const Ran ran = RunAll("{\"prompt\":\"a\"}\n{\"prompt\":\"b\",\"n\":1}\n",
                         {.concurrency = 1, .json = true}, defaults);
  EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 3);
}

TEST(JobRunner, ANumberIsAnIdInResultsAndErrors) {
  const Ran ran = RunAll("{\"id\":5,\"prompt\":\"a\"}\n{\"id\":6,\"prompt\":1}\n",
                         {.concurrency = 1, .json = true});
  EXPECT_THAT(ran.output, AllOf(HasSubstr("{\"id\":5,"), HasSubstr("{\"id\":6,\"error\"")));
  EXPECT_THAT(ran.output, HasSubstr("line 2, column 18: \\\"prompt\\\" must be a string"));
}

TEST(JobRunner, JobsThatAFileOfResultsAnswersAreLeftOut) {
  InputFile results = TextFile(
      "{\"id\":\"a\",\"finish_reason\":\"stop\"}\n{\"id\":\"b\",\"error\":{\"code\":\"X\"}}\n");
  const absl::StatusOr<AnsweredJobs> answered = AnsweredJobs::Read(results);
  ASSERT_TRUE(answered.ok()) << answered.status();
  const std::string lines =
      "{\"id\":\"a\",\"prompt\":\"x\"}\n{\"id\":\"b\",\"prompt\":\"y\"}\n{\"prompt\":\"z\"}\n";
  const Ran ran = RunAll(lines, {.concurrency = 1, .json = true}, {}, &*answered);
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.output, AllOf(HasSubstr("\"id\":\"b\""), HasSubstr("\"id\":\"3\"")));
  EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 2);
  EXPECT_THAT(ran.error, StartsWith("3 jobs: 2 answered, 1 answered before; 6 tokens"));
  const Ran twice = RunAll(lines + lines, {.concurrency = 1, .json = true}, {}, &*answered);
  EXPECT_EQ(twice.code, 2);
  EXPECT_EQ(twice.output, "");
  EXPECT_THAT(twice.error, HasSubstr("lines 1 and 4 both have the id a"));
}

}  // namespace
}  // namespace baton
