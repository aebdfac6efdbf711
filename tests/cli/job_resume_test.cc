#include "cli/job_resume.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/job_results.h"
#include "tests/cli/text_file.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

AnsweredJobs Answered(const std::string& text) {
  InputFile file = TextFile(text);
  absl::StatusOr<AnsweredJobs> answered = AnsweredJobs::Read(file);
  EXPECT_TRUE(answered.ok()) << answered.status();
  return answered.value_or(AnsweredJobs());
}

std::string Refusal(const std::string& text) {
  InputFile file = TextFile(text);
  return std::string(AnsweredJobs::Read(file).status().message());
}

std::string Line(const JobLabel& label, std::optional<int32_t> choice = std::nullopt) {
  JobResult result;
  result.choice = choice;
  result.finish_reason = "stop";
  result.logprobs = {{.logprob = -1, .top = {{.token = 1, .logprob = -1}}}};
  return ResultLine(label, result) + "\n";
}

JobLabel Text(const std::string& id) { return {.id = id}; }
JobLabel Number(const std::string& id) { return {.id = id, .id_is_number = true}; }

TEST(JobResume, AnswersCountAndFailuresDoNot) {
  const AnsweredJobs answered =
      Answered(Line(Text("a")) + ErrorLine(Text("b"), absl::InternalError("x")) + "\n\n" +
               ErrorLine(Text("c"), absl::InternalError("x")) + "\n" + Line(Text("c")));
  EXPECT_TRUE(answered.Has(Text("a"), 1));
  EXPECT_FALSE(answered.Has(Text("b"), 1));
  EXPECT_TRUE(answered.Has(Text("c"), 1));
  EXPECT_FALSE(answered.Has(Text("d"), 1));
}

TEST(JobResume, ANumberAndItsTextAreDifferentIds) {
  const AnsweredJobs answered = Answered(Line(Number("5")) + Line(Text("6")));
  EXPECT_TRUE(answered.Has(Number("5"), 1));
  EXPECT_FALSE(answered.Has(Text("5"), 1));
  EXPECT_FALSE(answered.Has(Number("6"), 1));
}

TEST(JobResume, AJobIsAnsweredOnlyWithAllItsChoices) {
  const AnsweredJobs answered = Answered(Line(Text("a"), 0) + Line(Text("a"), 1));
  EXPECT_TRUE(answered.Has(Text("a"), 2));
  EXPECT_FALSE(answered.Has(Text("a"), 3));
}

TEST(JobResume, BatchResultsCountByTheirStatus) {
  Job job;
  job.id = "a";
  job.form = JobForm::kChatBatch;
  const std::string answer = JobResultText(job, {JobResult(), JobResult()}, true, 0) + "\n";
  job.id = "b";
  const AnsweredJobs answered = Answered(answer + ErrorLine(job, absl::InternalError("x")) + "\n");
  EXPECT_TRUE(answered.Has(Text("a"), 2));
  EXPECT_FALSE(answered.Has(Text("b"), 1));
}

TEST(JobResume, ATornLastLineDoesNotCount) {
  const std::string whole = Line(Text("a"));
  for (const std::string& torn : {Line(Text("b")).substr(0, 20), std::string("{")}) {
    const AnsweredJobs answered = Answered(whole + torn);
    EXPECT_TRUE(answered.Has(Text("a"), 1));
    EXPECT_FALSE(answered.Has(Text("b"), 1));
    EXPECT_TRUE(answered.torn());
    EXPECT_EQ(answered.whole_bytes(), static_cast<int64_t>(whole.size()));
  }
  EXPECT_FALSE(Answered(whole).torn());
  EXPECT_FALSE(Answered("").torn());
}

TEST(JobResume, RefusesALineThatIsNoResultWithItsPlace) {
  EXPECT_THAT(Refusal(Line(Text("a")) + "[a] hello\n"),
              HasSubstr("line 2, column 2: not valid JSON"));
  EXPECT_THAT(Refusal("[]\n"), HasSubstr("line 1, column 1: a result must be a JSON object"));
  EXPECT_THAT(Refusal("{}\n"), HasSubstr("must have \"id\" or \"custom_id\""));
  EXPECT_THAT(Refusal("{\"id\":[]}\n"), HasSubstr("column 7: \"id\" must be a string"));
  EXPECT_THAT(Refusal("{\"id\":1,\"finish_reason\":\"stop\",\"choice\":16}\n"),
              HasSubstr("\"choice\" must be a whole number of 0 to 15"));
}

TEST(JobResume, RefusesDamagedResultsWithoutACrash) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  Job batch;
  batch.form = JobForm::kCompletionBatch;
  const std::string whole[] = {Line(Number("5"), 1),
                               JobResultText(batch, {JobResult()}, true, 0) + "\n"};
  const std::string bytes = "{}[],:\"\\ 019e.-tn\xc3\n";
  for (int i = 0; i < 5000; ++i) {
    std::string text = whole[i % 2];
    for (int strikes = 1 + static_cast<int>(random() % 3); strikes > 0; --strikes) {
      text[random() % text.size()] = bytes[random() % bytes.size()];
    }
    InputFile file = TextFile(text);
    const absl::StatusOr<AnsweredJobs> answered = AnsweredJobs::Read(file);
    if (!answered.ok()) {
      EXPECT_THAT(std::string(answered.status().message()), StartsWith("line "));
    }
  }
}

TEST(JobResume, JobsToDoAreCountedAndTheInputIsReadAgain) {
  InputFile jobs =
      TextFile("{\"id\":\"a\",\"prompt\":\"x\"}\n\n{\"id\":\"b\",\"n\":2,\"prompt\":\"x\"}\nbad");
  EXPECT_EQ(*CountJobsToDo(jobs, {}, nullptr), 3);
  const AnsweredJobs answered = Answered(Line(Text("a")) + Line(Text("b"), 0));
  EXPECT_EQ(*CountJobsToDo(jobs, {}, &answered), 2);
  std::string line;
  EXPECT_EQ(jobs.ReadLine(100, line), LineRead::kLine);
  EXPECT_THAT(line, HasSubstr("\"a\""));
}

TEST(JobResume, AnIdThatTwoLinesHaveIsRefused) {
  const AnsweredJobs answered;
  InputFile jobs = TextFile("{\"prompt\":\"x\"}\n{\"id\":\"1\",\"prompt\":\"x\"}\n");
  EXPECT_THAT(std::string(CountJobsToDo(jobs, {}, &answered).status().message()),
              HasSubstr("lines 1 and 2 both have the id 1"));
  InputFile same = TextFile("{\"prompt\":\"x\"}\n{\"id\":\"1\",\"prompt\":\"x\"}\n");
  EXPECT_TRUE(CountJobsToDo(same, {}, nullptr).ok());
}

class Appending : public ::testing::Test {
 protected:
  Appending() : path_(::testing::TempDir() + "/results-" + std::to_string(getpid())) {
    std::ofstream(path_) << whole_ << "{\"id\":";
  }
  ~Appending() override { std::filesystem::remove(path_); }

  absl::Status Prepare(int flags) {
    absl::StatusOr<InputFile> file = InputFile::Open(path_);
    const absl::StatusOr<AnsweredJobs> answered = AnsweredJobs::Read(*file);
    const int output = open(path_.c_str(), flags | O_CLOEXEC);
    const absl::Status status = PrepareToAppend(*answered, path_, output);
    close(output);
    return status;
  }
  std::string Content() {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const std::string whole_ = Line(Text("a"));
  const std::string path_;
};

TEST_F(Appending, TheTornLineIsCutOffBeforeMoreIsAppended) {
  EXPECT_EQ(Prepare(O_WRONLY | O_APPEND), absl::OkStatus());
  EXPECT_EQ(Content(), whole_);
}

TEST_F(Appending, OverwritingTheResultsIsRefused) {
  EXPECT_THAT(std::string(Prepare(O_WRONLY).message()), HasSubstr("append to it (>>)"));
  EXPECT_EQ(Content(), whole_ + "{\"id\":");
}

TEST_F(Appending, AnotherFileStaysUnchanged) {
  absl::StatusOr<InputFile> file = InputFile::Open(path_);
  const absl::StatusOr<AnsweredJobs> answered = AnsweredJobs::Read(*file);
  const int output = open("/dev/null", O_WRONLY | O_CLOEXEC);
  EXPECT_EQ(PrepareToAppend(*answered, path_, output), absl::OkStatus());
  close(output);
  EXPECT_EQ(Content(), whole_ + "{\"id\":");
}

}  // namespace
}  // namespace baton
