// Scores of questions, and the tap that reads rows of logits out of an engine.
#include "bench/chunk_scores.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "tests/engine/tiny_engine.h"

namespace baton {
namespace {

class ChunkScoresTest : public testing::Test {
 protected:
  static ChunkedPrompt Prompt(const ChunkOptions& options = {}) {
    ChunkedPrompt prompt{.options = options,
                         .system = TinyRequest(11, 1, 1).prompt,
                         .chunks = {},
                         .question = TinyRequest(9, 1, 2).prompt};
    for (const int32_t length : {37, 20}) {
      prompt.chunks.push_back(TinyRequest(length, 1, 10 + length).prompt);
    }
    return prompt;
  }
  EngineOptions Tapped() {
    EngineOptions options = TinyOptions();
    options.architectures = tapped_.list();
    return options;
  }

  LogitTap tap_;
  const TappedArchitectures tapped_{&tap_};
};

TEST_F(ChunkScoresTest, TheTapChangesNoBit) {
  const auto plain = MakeEngine(TinyOptions());
  const auto tapped = MakeEngine(Tapped());
  for (const uint64_t seed : {0, 5}) {
    GenerateRequest request = TinyRequest(40, 12, seed);
    request.sampling.logprobs = 3;
    tap_.Want(35, 45);
    const SinkRecord with = Ask(*tapped, request);
    const SinkRecord without = Ask(*plain, request);
    EXPECT_EQ(with.tokens, without.tokens);
    EXPECT_EQ(with.finish->logits_hash, without.finish->logits_hash);
    EXPECT_EQ(tap_.rows().size(), 10u);
  }
}

TEST_F(ChunkScoresTest, ARowGivesTheEnginesOwnLogProbabilities) {
  const auto engine = MakeEngine(Tapped());
  GenerateRequest request = TinyRequest(40, 6, 0);
  request.sampling.logprobs = 5;
  tap_.Want(39, 45);
  auto sink = std::make_shared<WaitingSink>();
  engine->Generate(request, sink);
  const SinkRecord record = sink->WaitForEnd();
  ASSERT_EQ(tap_.rows().size(), 6u);
  ASSERT_EQ(record.logprobs.size(), 6u);
  for (int32_t i = 0; i < 6; ++i) {
    const LogitRow row(tap_.rows().at(39 + i));
    for (const TokenLogprob& top : record.logprobs[static_cast<size_t>(i)].top) {
      EXPECT_NEAR(row.LogProbability(top.token), top.logprob, 1e-5);
    }
    EXPECT_EQ(row.DivergenceOf(row), 0);
  }
}

TEST_F(ChunkScoresTest, TheGreedyAnswerIsRightInItsOwnModeAndFullAttentionIsNotFarFromItself) {
  const auto engine = MakeEngine(Tapped());
  QuestionScorer scorer(engine.get(), &tap_);
  const ChunkOptions modes[] = {
      {},
      {.positions = ChunkPositions::kSequential},
      {.repair = {.kind = ChunkRepair::Kind::kFirst, .first_tokens = 30}},
      {.positions = ChunkPositions::kSequential,
       .repair = {.kind = ChunkRepair::Kind::kShare, .share_millionths = 500'000}}};
  for (const ChunkOptions& options : modes) {
    for (const bool in_chunks : {true, false}) {
      const ChunkedPrompt prompt = Prompt(options);
      GenerateRequest request = in_chunks ? GreedyRequest(prompt, 4, CacheNamespace(1))
                                          : GreedyRequest(FlatTokens(prompt), 4, CacheNamespace(1));
      request.sampling.logprobs = 0;
      const SinkRecord record = Ask(*engine, request);
      EncodedQuestion question{.parts = prompt, .right_chunks = {}, .choices = {record.tokens}};
      question.choices.push_back(TinyRequest(3, 1, 77).prompt);  // as long as a choice may be
      question.choices.push_back({record.tokens[0], 300, 301, 302, 303});
      const auto score = scorer.Score(prompt, in_chunks, question, nullptr);
      ASSERT_TRUE(score.ok()) << score.status();
      EXPECT_TRUE(score->summary.greedy);
      double nll = 0;
      for (const TokenDetail& detail : record.logprobs) nll -= detail.logprob / 4;
      EXPECT_NEAR(score->summary.nll, nll, 1e-5);
      ASSERT_EQ(score->answer_rows.size(), 4u);
      const auto again = scorer.Score(prompt, in_chunks, question, &score->answer_rows);
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(again->summary.divergence, 0);
      EXPECT_EQ(again->summary.nll, score->summary.nll);
    }
  }
}

TEST_F(ChunkScoresTest, AModeThatHidesDocumentsFromEachOtherIsApartFromFullAttention) {
  const auto engine = MakeEngine(Tapped());
  QuestionScorer scorer(engine.get(), &tap_);
  const ChunkedPrompt prompt = Prompt();
  const EncodedQuestion question{
      .parts = prompt, .right_chunks = {}, .choices = {{40, 50}, {41, 51}}};
  const auto full = scorer.Score(prompt, false, question, nullptr);
  ASSERT_TRUE(full.ok()) << full.status();
  const auto overlap = scorer.Score(prompt, true, question, &full->answer_rows);
  ASSERT_TRUE(overlap.ok()) << overlap.status();
  EXPECT_GT(overlap->summary.divergence, 0);
  EXPECT_TRUE(std::isfinite(overlap->summary.divergence));
}

}  // namespace
}  // namespace baton
