#include "cli/job_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/command_line.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// Returns the job that the flags describe, or the error for a wrong flag.
absl::StatusOr<SamplingParams> ParseFlags(const std::vector<std::string>& arguments) {
  CommandLine line("A test.");
  SamplingParams sampling;
  AddSamplingFlags(line, sampling);
  std::vector<const char*> argv = {"test"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  ::testing::internal::CaptureStderr();
  const std::optional<int> ended = line.Parse(static_cast<int>(argv.size()), argv.data());
  const std::string said = ::testing::internal::GetCapturedStderr();
  if (ended) return absl::InvalidArgumentError(said);
  return sampling;
}

SamplingParams Parse(const std::vector<std::string>& arguments) {
  const absl::StatusOr<SamplingParams> sampling = ParseFlags(arguments);
  EXPECT_TRUE(sampling.ok()) << sampling.status();
  return sampling.value_or(SamplingParams());
}

std::string Refusal(const std::vector<std::string>& arguments) {
  return std::string(ParseFlags(arguments).status().message());
}

TEST(JobFlags, WhatIsNotGivenKeepsItsDefault) {
  const SamplingParams sampling = Parse({});
  EXPECT_EQ(sampling.temperature, SamplingParams().temperature);
  EXPECT_FALSE(sampling.max_tokens.has_value());
  EXPECT_FALSE(sampling.logprobs.has_value());
  EXPECT_TRUE(sampling.logit_bias.empty());
}

TEST(JobFlags, RepeatableFlagsCollect) {
  const SamplingParams sampling =
      Parse({"--logit-bias", "5:-100", "--stop-token-id", "7", "--logit-bias=6:1.5", "--stop", "a",
             "--stop-token-id", "8", "--stop", "b c", "--min-tokens", "3"});
  EXPECT_THAT(sampling.logit_bias, UnorderedElementsAre(Pair(5, -100.0f), Pair(6, 1.5f)));
  EXPECT_THAT(sampling.stop_token_ids, ElementsAre(7, 8));
  EXPECT_THAT(sampling.stop, ElementsAre("a", "b c"));
  EXPECT_EQ(sampling.min_tokens, 3);
}

TEST(JobFlags, ALogitBiasThatIsNoneIsRefusedByItsText) {
  for (const char* text : {"5", "5:", ":1", "x:1", "5:x", "5:1:2", "3000000000:1", ""}) {
    EXPECT_THAT(Refusal({"--logit-bias", text}), HasSubstr("must be ID:BIAS")) << text;
  }
  for (const char* text : {"-1:1", "5:nan", "5:100.5", "5:-inf"}) {
    EXPECT_THAT(Refusal({"--logit-bias", text}), HasSubstr("0 to 2147483647")) << text;
  }
  EXPECT_THAT(Refusal({"--logit-bias", "5:1", "--logit-bias", "5:2"}),
              HasSubstr("names token 5 twice"));
}

TEST(JobFlags, ANumberOutOfRangeIsRefusedWithTheRange) {
  EXPECT_THAT(Refusal({"--max-tokens", "99999999999"}),
              HasSubstr("--max-tokens: is 99999999999; must be 1 to 2147483647"));
  EXPECT_THAT(Refusal({"--max-tokens", "0"}), HasSubstr("must be 1 to"));
  EXPECT_THAT(Refusal({"--temperature", "nan"}), HasSubstr("is nan; must be 0 to 100"));
  EXPECT_THAT(Refusal({"--repetition-penalty", "0"}), HasSubstr("must be 0.01 to 100"));
  EXPECT_THAT(Refusal({"--presence-penalty", "-3"}), HasSubstr("must be -2 to 2"));
  EXPECT_THAT(Refusal({"--logprobs", "21"}), HasSubstr("must be 0 to 20"));
  EXPECT_THAT(Refusal({"--stop-token-id", "1", "--stop-token-id", "3000000000"}),
              HasSubstr("--stop-token-id: is 3000000000; must be 0 to 2147483647"));
}

TEST(JobFlags, ASeedHasAllOf64BitsAndNoSign) {
  EXPECT_EQ(Parse({"--seed", "18446744073709551615"}).seed, 18446744073709551615u);
  EXPECT_THAT(Refusal({"--seed", "-1"}), HasSubstr("must be 0 to 2^64-1"));
}

TEST(JobFlags, APriorityIsTheJobsAndHasARange) {
  for (const auto& [text, ok] : {std::pair{"-3", true}, {"100", true}, {"101", false}}) {
    CommandLine line("A test.");
    JobFlags flags;
    AddJobFlags(line, flags);
    const char* const argv[] = {"test", "--prompt", "x", "--priority", text};
    ::testing::internal::CaptureStderr();
    const std::optional<int> ended = line.Parse(5, argv);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(!ended.has_value(), ok) << said;
    EXPECT_EQ(flags.job.priority, ok ? std::stoi(text) : 0);
    EXPECT_THAT(said, HasSubstr(ok ? "" : "101"));
  }
}

TEST(JobFlags, ResumeAndOrderedNeedAFileOfJobs) {
  const auto refusal = [](const std::vector<const char*>& arguments) {
    CommandLine line("A test.");
    JobFlags flags;
    AddJobFlags(line, flags);
    std::vector<const char*> argv = {"test"};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    ::testing::internal::CaptureStderr();
    const std::optional<int> ended = line.Parse(static_cast<int>(argv.size()), argv.data());
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(ended.has_value(), !said.empty());
    return said;
  };
  EXPECT_THAT(refusal({"--prompt=a", "--ordered"}), HasSubstr("--ordered needs --jobs"));
  EXPECT_THAT(refusal({"--prompt=a", "--json", "--resume=r"}), HasSubstr("--resume needs --jobs"));
  EXPECT_THAT(refusal({"--jobs=-", "--resume=r"}), HasSubstr("--resume needs --json"));
  EXPECT_EQ(refusal({"--jobs=-", "--json", "--resume=r", "--ordered"}), "");
}

}  // namespace
}  // namespace baton
