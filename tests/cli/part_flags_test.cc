// Tests the flags of a job in parts: --system, --chunk, --question and the options of chunks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/job_flags.h"
#include "common/exit_code.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

// Keeps the job that it is asked to run.
class KeepingRunner final : public JobRunner {
 public:
  absl::StatusOr<std::vector<JobResult>> Run(
      const Job& job, const std::function<void(std::string_view)>&) override {
    asked = job;
    std::vector<JobResult> results(1);
    results[0].finish_reason = "stop";
    return results;
  }
  void Interrupt() override {}

  std::optional<Job> asked;
};

struct Outcome {
  std::optional<Job> job;
  std::string error;
  int code = 0;
};

// Parses the flags and runs their job.
Outcome RunWith(const std::vector<std::string>& arguments) {
  CommandLine line("A test.");
  JobFlags flags;
  AddJobFlags(line, flags);
  std::vector<const char*> argv = {"test", "--json"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  KeepingRunner runner;
  Outcome out;
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  const std::optional<int> ended = line.Parse(static_cast<int>(argv.size()), argv.data());
  out.code = ended ? *ended : RunFlaggedJobs(runner, flags);
  ::testing::internal::GetCapturedStdout();
  out.error = ::testing::internal::GetCapturedStderr();
  out.job = std::move(runner.asked);
  return out;
}

std::string FileWith(const std::string& text) {
  const std::string path = ::testing::TempDir() + "part_flags_chunk.txt";
  std::ofstream(path) << text;
  return path;
}

TEST(PartFlags, TheCommandLineSendsAConversation) {
  const std::string path = FileWith(" from a file\n");
  const Outcome out = RunWith({"--system", "Be brief.", "--chunk", "@" + path, "--chunk", "B",
                               "--question", "Who signed?"});
  ASSERT_TRUE(out.job.has_value()) << out.error;
  ASSERT_TRUE(out.job->messages.has_value());
  const std::vector<ChatMessage>& messages = *out.job->messages;
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].role, "system");
  EXPECT_EQ(messages[0].content, "Be brief.");
  EXPECT_TRUE(messages[0].chunks.empty());
  EXPECT_EQ(messages[1].role, "user");
  EXPECT_EQ(messages[1].content, "Who signed?");
  EXPECT_EQ(messages[1].chunks, (std::vector<PromptPart>{" from a file\n", "B"}));
  EXPECT_FALSE(out.job->parts || out.job->prompt);
}

TEST(PartFlags, SystemAndChunksAreOptional) {
  const Outcome out = RunWith({"--question", "Who?"});
  ASSERT_TRUE(out.job.has_value()) << out.error;
  ASSERT_EQ(out.job->messages->size(), 1u);
  EXPECT_TRUE((*out.job->messages)[0].chunks.empty());
}

TEST(PartFlags, OptionsApplyToEveryFormOfAJob) {
  for (const char* form : {"--question=Q", "--prompt=S##A##Q", "--chat=S##Q"}) {
    const Outcome out = RunWith({form, "--chunk-positions", "sequential", "--chunk-scope", "alone",
                                 "--chunk-repair", "first:16", "--chunk-separator", "##"});
    ASSERT_TRUE(out.job.has_value()) << out.error;
    EXPECT_EQ(out.job->chunk_options,
              (ChunkOptions{.positions = ChunkPositions::kSequential,
                            .scope = ChunkScope::kAlone,
                            .repair = {.kind = ChunkRepair::Kind::kFirst, .first_tokens = 16}}));
    EXPECT_EQ(out.job->chunk_separator, "##");
  }
}

TEST(PartFlags, AnEmptySeparatorIsGiven) {
  EXPECT_EQ(RunWith({"--prompt", "a", "--chunk-separator", ""}).job->chunk_separator, "");
  EXPECT_EQ(RunWith({"--prompt", "a"}).job->chunk_separator, std::nullopt);
}

TEST(PartFlags, WrongLinesAreRefusedByFlagAndValue) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--chunk", "A"}, "--chunk needs --question"},
      {{"--system", "S", "--prompt", "x"}, "--system needs --question"},
      {{"--question", "Q", "--prompt", "x"}, "--prompt"},
      {{"--question", "Q", "--chat", "x"}, "--chat"},
      {{"--question", "Q", "--jobs", "-"}, "--jobs"},
      {{"--prompt", "x", "--chunk-positions", "side"}, "side"},
      {{"--prompt", "x", "--chunk-scope", "all"}, "all"},
      {{"--prompt", "x", "--chunk-repair", "share:2"}, "chunk_repair is \"share:2\""},
      {{"--prompt", "x", "--chunk-separator", std::string(257, '#')},
       "chunk_separator has 257 bytes; at most 256 are allowed"},
      {{"--question", "Q", "--chunk", "@/nowhere/a.txt"}, "/nowhere/a.txt"},
      {{}, "--question or --jobs"},
  };
  for (const auto& [arguments, said] : cases) {
    const Outcome out = RunWith(arguments);
    EXPECT_EQ(out.code, kExitUsage) << out.error;
    EXPECT_FALSE(out.job.has_value());
    EXPECT_THAT(out.error, HasSubstr(said));
  }
}

}  // namespace
}  // namespace baton
