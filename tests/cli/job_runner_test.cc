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

// Answers every job with its prompt, or with an error when the prompt names one.
class EchoRunner final : public JobRunner {
 public:
  absl::StatusOr<std::vector<JobResult>> Run(
      const Job& job, const std::function<void(std::string_view)>& on_text) override {
    if (job.prompt == "invalid") return absl::InvalidArgumentError("no such thing");
    if (job.prompt == "unavailable") return absl::UnavailableError("nobody there");
    if (job.n == 1) on_text(*job.prompt);
    std::vector<JobResult> results(static_cast<size_t>(job.n));
    for (int32_t i = 0; i < job.n; ++i) {
      results[i].id = job.id;
      results[i].text = *job.prompt;
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

int RunLines(const std::string& lines, std::string& output) {
  EchoRunner runner;
  InputFile input = TextFile(lines);
  ::testing::internal::CaptureStdout();
  const int code = RunJobLines(runner, input, {.concurrency = 2, .json = true});
  output = ::testing::internal::GetCapturedStdout();
  return code;
}

TEST(JobRunner, TheExitCodeOfOneJobSaysWhatWasWrong) {
  std::string output;
  EXPECT_EQ(RunOne("hello", output), 0);
  EXPECT_THAT(output, HasSubstr("hello"));
  EXPECT_EQ(RunOne("invalid", output), 2);
  EXPECT_THAT(output, HasSubstr("INVALID_ARGUMENT"));
  EXPECT_EQ(RunOne("unavailable", output), 1);
}

TEST(JobRunner, EveryChoiceHasALineOfItsOwn) {
  std::string output;
  EXPECT_EQ(RunLines(R"({"id":"a","prompt":"hello","n":3})", output), 0);
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 3);
  EXPECT_THAT(output, AllOf(HasSubstr(R"("id":"a","choice":0)"), HasSubstr(R"("choice":2)")));
  EXPECT_EQ(RunLines(R"({"id":"a","prompt":"hello"})", output), 0);
  EXPECT_THAT(output, ::testing::Not(HasSubstr("choice")));
}

TEST(JobRunner, ChoicesAreTitledForPeople) {
  EchoRunner runner;
  Job job;
  job.id = "it";
  job.prompt = "hello";
  job.n = 2;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunOneJob(runner, job, {.concurrency = 1, .json = false}), 0);
  ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              AllOf(HasSubstr("=== choice 0 ()"), HasSubstr("=== choice 1 () ===\nhello\n")));
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

TEST(JobRunner, ReadingThatFailsIsNotTheEndOfTheJobs) {
  EchoRunner runner;
  InputFile input(std::fopen("/", "r"), "folder");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunJobLines(runner, input, {.concurrency = 2, .json = true}), 1);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "baton: UNAVAILABLE: cannot read folder: Is a directory\n");
}

TEST(JobRunner, NoMoreJobsAreBegunThanTheirResultsCanBeWritten) {
  EchoRunner runner;
  InputFile input = TextFile("{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n{\"prompt\":\"c\"}\n");
  {
    const FullStandardOutput full;
    ::testing::internal::CaptureStderr();
    RunJobLines(runner, input, {.concurrency = 1, .json = true});
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "baton: UNAVAILABLE: cannot write results: No space left on device\n");
  std::string line;
  EXPECT_EQ(input.ReadLine(100, line), LineRead::kLine);
  EXPECT_EQ(line, "{\"prompt\":\"b\"}");
}

TEST(JobRunner, ALineOverTheLimitIsAnErrorOfItsOwn) {
  std::string output;
  const std::string spaces(kMaxJobLineBytes + 1, ' ');
  EXPECT_EQ(RunLines("{\"prompt\":\"a\"" + spaces + "}\n{\"prompt\":\"b\"}", output), 1);
  EXPECT_THAT(output, HasSubstr("line 1: it has more than 33554432 bytes"));
  EXPECT_THAT(output,
              HasSubstr("\"id\":\"2\",\"prompt_token_ids\":[],\"token_ids\":[],\"text\":\"b\""));
}

}  // namespace
}  // namespace baton
