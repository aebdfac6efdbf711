#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/job_format.h"
#include "cli/jobs.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using Parts = std::vector<PromptPart>;
using Ids = std::vector<TokenId>;

Job Parsed(std::string_view line, const Job& defaults = {}) {
  const absl::StatusOr<Job> job = ParseJob(line, 7, defaults);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.value_or(Job());
}

std::string Refusal(std::string_view line) {
  const absl::StatusOr<Job> job = ParseJob(line, 7);
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument) << line;
  return std::string(job.status().message());
}

TEST(JobParts, APartIsTextOrTokenIds) {
  const Job job = Parsed(
      R"({"id":"a","system":"S","chunks":["A",[1,2],"B"],"question":[3],"chunk_positions":"sequential",
          "chunk_scope":"alone","chunk_repair":"share:0.15"})");
  ASSERT_TRUE(job.parts.has_value());
  EXPECT_EQ(job.parts->system, PromptPart("S"));
  EXPECT_EQ(job.parts->chunks, (Parts{"A", Ids{1, 2}, "B"}));
  EXPECT_EQ(job.parts->question, PromptPart(Ids{3}));
  EXPECT_EQ(
      job.chunk_options,
      (ChunkOptions{.positions = ChunkPositions::kSequential,
                    .scope = ChunkScope::kAlone,
                    .repair = {.kind = ChunkRepair::Kind::kShare, .share_millionths = 150'000}}));
}

TEST(JobParts, OnlyTheQuestionIsRequired) {
  const Job job = Parsed(R"({"question":"Q","system":null,"chunks":null})");
  EXPECT_EQ(job.parts->system, PromptPart(""));
  EXPECT_TRUE(job.parts->chunks.empty());
  EXPECT_EQ(job.chunk_options, ChunkOptions());
  EXPECT_THAT(Refusal(R"({"chunks":["A"]})"),
              HasSubstr("line 7, column 2: \"chunks\" needs \"question\""));
  EXPECT_THAT(Refusal(R"({"system":"S","question":null})"),
              HasSubstr("\"system\" needs \"question\""));
}

TEST(JobParts, AMessageMayHaveChunks) {
  const Job job = Parsed(
      R"({"messages":[{"role":"system","content":"S","chunks":null},
                      {"role":"user","content":"Q","chunks":["A",[5]]}]})");
  EXPECT_TRUE((*job.messages)[0].chunks.empty());
  EXPECT_EQ((*job.messages)[1].chunks, (Parts{"A", Ids{5}}));
  EXPECT_THAT(Refusal(R"({"messages":[{"role":"user","content":"Q","chunks":[1]}]})"),
              HasSubstr("\"messages[0].chunks[0]\" must be a string or an array of token ids"));
}

TEST(JobParts, ASeparatorIsKeptEvenIfEmpty) {
  EXPECT_EQ(Parsed(R"({"prompt":"a"})").chunk_separator, std::nullopt);
  EXPECT_EQ(Parsed(R"({"prompt":"a","chunk_separator":"##"})").chunk_separator, "##");
  Job defaults;
  defaults.chunk_separator = "##";
  defaults.chunk_options.scope = ChunkScope::kAlone;
  EXPECT_EQ(Parsed(R"({"prompt":"a"})", defaults).chunk_separator, "##");
  EXPECT_EQ(Parsed(R"({"prompt":"a"})", defaults).chunk_options.scope, ChunkScope::kAlone);
  EXPECT_EQ(Parsed(R"({"prompt":"a","chunk_separator":""})", defaults).chunk_separator, "");
  EXPECT_EQ(Parsed(R"({"prompt":"a","chunk_scope":"system"})", defaults).chunk_options.scope,
            ChunkScope::kSystem);
}

TEST(JobParts, BadValuesAreRefusedByPlaceValueAndLimit) {
  std::string many = R"({"question":"Q","chunks":["A")";
  for (int i = 0; i < 500; ++i) many += R"(,"A")";
  const std::string separator =
      absl::StrCat(R"({"prompt":"a","chunk_separator":")", std::string(257, '#'), "\"}");
  const struct {
    std::string line;
    const char* refusal;
  } cases[] = {
      {R"({"question":1})", "column 13: \"question\" must be a string or an array of token ids"},
      {R"({"question":["x"]})", "column 14: \"question[0]\" must be a whole number"},
      {R"({"question":"Q","chunks":"A"})", "column 26: \"chunks\" must be an array of chunks"},
      {R"({"question":"Q","chunks":[null]})", "column 27: \"chunks[0]\" must be a string or"},
      {many + "]}", "\"chunks\" has 501 entries; at most 500 are allowed"},
      {R"({"question":"Q","chunk_positions":"x"})",
       "column 35: chunk_positions is \"x\"; overlap or sequential is allowed"},
      {R"({"question":"Q","chunk_scope":"x"})", "chunk_scope is \"x\"; system or alone is allowed"},
      {R"({"question":"Q","chunk_repair":"first:-1"})",
       "chunk_repair is \"first:-1\"; none, first:K"},
      {R"({"question":"Q","chunk_repair":1})", "\"chunk_repair\" must be a string"},
      {separator, "column 33: chunk_separator has 257 bytes; at most 256 are allowed"},
      {R"({"question":"Q","prompt":"a"})",
       "a job has one of \"prompt\", \"prompt_token_ids\", \"messages\" and \"question\"; this one "
       "has 2"},
  };
  for (const auto& [line, refusal] : cases) EXPECT_THAT(Refusal(line), HasSubstr(refusal)) << line;
}

TEST(JobParts, TheHelpNamesEveryField) {
  for (const char* name : {"question", "chunks", "system", "chunk_positions", "chunk_scope",
                           "chunk_repair", "chunk_separator"}) {
    EXPECT_THAT(JobFormatHelp(), HasSubstr(absl::StrCat("\n  ", name, " "))) << name;
  }
}

}  // namespace
}  // namespace baton
