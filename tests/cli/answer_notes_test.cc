#include "cli/answer_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobResult Ended(const std::string& reason, std::vector<TokenId> tokens) {
  JobResult result;
  result.finish_reason = reason;
  result.prompt_tokens = 10;
  result.completion_tokens = static_cast<int32_t>(tokens.size());
  result.token_ids = std::move(tokens);
  return result;
}

TEST(AnswerNotes, AnAnswerThatReachedItsNaturalEndHasNoNote) {
  EXPECT_EQ(StopNote(Job(), Ended("stop", {1, 2}), {}), "");
  EXPECT_THAT(TokensToShow(Job(), {Ended("stop", {1, 2})}), IsEmpty());
}

TEST(AnswerNotes, NamesTheTokenLimitOrTheEndOfTheRoom) {
  Job job;
  job.sampling.max_tokens = 2;
  EXPECT_EQ(StopNote(job, Ended("length", {1, 2}), {}), "(stopped: 2 tokens, --max-tokens)");
  job.sampling.max_tokens = 3;
  EXPECT_EQ(StopNote(job, Ended("length", {1, 2}), {}),
            "(stopped: no room for more, prompt and answer have 12 tokens)");
  job.sampling.max_tokens.reset();
  EXPECT_THAT(StopNote(job, Ended("length", {1, 2}), {}), HasSubstr("no room"));
}

TEST(AnswerNotes, ForAJobOfAFileTheLimitsHaveTheNamesOfItsFields) {
  Job job;
  job.line = 3;
  job.sampling.max_tokens = 2;
  EXPECT_EQ(StopNote(job, Ended("length", {1, 2}), {}),
            "(stopped: 2 tokens, max_tokens or --max-tokens)");
  job.sampling.stop_token_ids = {2};
  EXPECT_EQ(StopNote(job, Ended("stop", {1, 2}), {}),
            "(stopped: token 2, stop_token_ids or --stop-token-id)");
  job.sampling.stop = {"a"};
  EXPECT_EQ(StopNote(job, Ended("stop", {1}), {{1, "a"}}), "(stopped: \"a\", stop or --stop)");
}

TEST(AnswerNotes, AStopTokenIsNamed) {
  Job job;
  job.sampling.stop_token_ids = {7, 2};
  EXPECT_EQ(StopNote(job, Ended("stop", {1, 2}), {}), "(stopped: token 2, --stop-token-id)");
  EXPECT_EQ(StopNote(job, Ended("stop", {2, 1}), {}), "") << "2 came before --min-tokens";
}

TEST(AnswerNotes, AStopStringIsFoundAcrossTokens) {
  Job job;
  job.sampling.stop = {"zebra", "lo w\n"};
  const JobResult result = Ended("stop", {1, 2, 3});
  const TokenPieces pieces = {{1, "hel"}, {2, "lo"}, {3, " w\nor"}};
  EXPECT_THAT(TokensToShow(job, {result}), ElementsAre(1, 2, 3));
  EXPECT_EQ(StopNote(job, result, pieces), "(stopped: \"lo w\\x0a\", --stop)");
}

TEST(AnswerNotes, AStopStringThatEndedBeforeTheLastTokenIsNotTheReason) {
  Job job;
  job.sampling.stop = {"hel"};
  job.sampling.min_tokens = 2;
  const TokenPieces pieces = {{1, "hel"}, {2, "lo"}, {3, "<end>"}};
  EXPECT_EQ(StopNote(job, Ended("stop", {1, 2, 3}), pieces), "");
  EXPECT_EQ(StopNote(job, Ended("stop", {1, 2, 3}), {}), "") << "pieces are not known";
}

TEST(AnswerNotes, NamesADeadlineAndACancellation) {
  EXPECT_EQ(StopNote(absl::DeadlineExceededError("x")),
            "(stopped: the deadline passed, --timeout-ms)");
  EXPECT_EQ(StopNote(absl::CancelledError("x")), "(stopped: cancelled)");
  EXPECT_EQ(StopNote(absl::UnavailableError("x")), "");
}

TEST(AnswerNotes, LogprobsAreInAlignedColumns) {
  JobResult result = Ended("stop", {1, 2});
  result.logprobs = {{.logprob = -0.25f, .top = {{1, -0.25f}, {2, -1.5f}}},
                     {.logprob = -12.5f, .top = {{3, -0.125f}}}};
  const TokenPieces pieces = {{1, "é\n"}, {2, "\x1b["}};
  EXPECT_THAT(TokensToShow(Job(), {result}), ElementsAre(1, 2, 3));
  EXPECT_EQ(LogprobsTable(result, pieces),
            "  token             logprob   most likely\n"
            "  \"é\\x0a\"            -0.250   \"é\\x0a\"            -0.250  "
            "\"\\x1b[\"            -1.500\n"
            "  \"\\x1b[\"           -12.500   #3                 -0.125\n");
}

TEST(AnswerNotes, WithoutLogprobsThereIsNoTable) {
  EXPECT_EQ(LogprobsTable(Ended("stop", {1}), {}), "");
}

TEST(AnswerNotes, OneLedgerHasTheLongestTotalAndAllTokens) {
  JobResult a = Ended("stop", {1, 2});
  a.ledger = {{"queue_us", 5}, {"total_us", 100}};
  JobResult b = Ended("length", {1, 2, 3});
  b.ledger = {{"queue_us", 5}, {"total_us", 300}};
  const JobResult one = WithOneLedger({b, a});
  EXPECT_EQ(one.completion_tokens, 5);
  EXPECT_THAT(one.ledger,
              ElementsAre(testing::Pair("queue_us", 5), testing::Pair("total_us", 300)));
}

}  // namespace
}  // namespace baton
