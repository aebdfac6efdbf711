#include "engine/row_sampler.h"

#include <gtest/gtest.h>

#include "tests/engine/machine_bench.h"

namespace baton {
namespace {

using Drawn = std::vector<absl::StatusOr<TokenId>>;

TokenSource Source(SamplingParams params, const Tokenizer& tokenizer) {
  return TokenSource(params, std::vector<TokenId>{'a'}, tokenizer.end_of_generation(),
                     /*hash_logits=*/false);
}

// Makes the runner hold the logits of the prompt "a".
void ComputePrompt(MachineBench& bench) {
  StepInput input;
  const TokenId token = 'a';
  const BlockId block(0);
  StepChunk& chunk = input.chunks.emplace_back();
  chunk.tokens = std::span(&token, 1);
  chunk.block_table = std::span(&block, 1);
  chunk.logit_rows = 1;
  ASSERT_TRUE(bench.runner.Run(input).ok());
}

TEST(RowSampler, GivesTheTokenThatTheStepDrew) {
  MachineBench bench;
  const Drawn drawn = {'p', 'q'};
  const TokenSource source = Source(MachineBench::Greedy(), *bench.tokenizer);
  EXPECT_EQ(bench.sampler.Take(source, MachineBench::Row(drawn, 1), 0)->token, 'p');
  EXPECT_EQ(bench.sampler.Take(source, MachineBench::Row(drawn, 1), 1)->token, 'q');
}

TEST(RowSampler, PassesOnWhyARowAllowsNoToken) {
  MachineBench bench;
  const Drawn drawn = {absl::InternalError("a NaN")};
  const TokenSource source = Source(MachineBench::Greedy(), *bench.tokenizer);
  EXPECT_EQ(bench.sampler.Take(source, MachineBench::Row(drawn, 1), 0).status(),
            absl::InternalError("a NaN"));
}

TEST(RowSampler, DrawsHereWherePenaltiesCountTheTokens) {
  MachineBench bench;
  ComputePrompt(bench);
  SamplingParams params = MachineBench::Greedy();
  params.presence_penalty = 0.001F;
  const TokenSource source = Source(params, *bench.tokenizer);
  const absl::StatusOr<DrawnToken> drawn = bench.sampler.Take(source, MachineBench::Row({}, 1), 0);
  ASSERT_TRUE(drawn.ok()) << drawn.status();
  EXPECT_EQ(drawn->token, bench.runner.Continuation({'a'}, 1)[0]);
}

}  // namespace
}  // namespace baton
