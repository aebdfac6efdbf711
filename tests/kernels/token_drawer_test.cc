#include "kernels/token_drawer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "kernels/softmax_weight.h"
#include "tests/kernels/naive_draw.h"

namespace baton {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(TokenDrawer, EqualsTheNaiveDrawOverRandomRowsAndRules) {
  constexpr uint64_t kSeed = 20261122;
  std::mt19937_64 random(kSeed);
  TokenDrawer drawer;
  std::map<TokenId, int> codes;
  for (uint64_t round = 0; round < 4000; ++round) {
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed << " round " << round);
    const size_t vocabulary = 1 + random() % (round % 10 == 0 ? 5000 : 300);
    const std::vector<float> logits = RandomLogits(random, vocabulary);
    const DrawRule rule = RandomDrawRule(random);
    const DrawKey key{random(), static_cast<uint32_t>(round % 3), round};
    const TokenId token = drawer.Draw(logits, rule, key);
    EXPECT_EQ(token, NaiveDraw(logits, rule, key));
    ++codes[std::min(token, 0)];
  }
  EXPECT_GT(codes[0], 3000);
  EXPECT_GT(codes[kDrawNotANumber], 100);
  EXPECT_GT(codes[kDrawNothingAllowed], 20);
}

TEST(TokenDrawer, ARowThatTheCallerScannedGivesTheSameToken) {
  constexpr uint64_t kSeed = 71;
  std::mt19937_64 random(kSeed);
  TokenDrawer drawer;
  int with_weights = 0;
  for (uint64_t round = 0; round < 500; ++round) {
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed << " round " << round);
    const std::vector<float> logits = RandomLogits(random, 1 + random() % 4000);
    const DrawRule rule = RandomDrawRule(random);
    const DrawKey key{random(), 0, round};
    const TokenId expected = drawer.Draw(logits, rule, key);
    std::vector<ChunkMaximum> maxima;
    AppendMaxima(logits, maxima);
    const RankedToken best = BestOf(logits, maxima);
    EXPECT_EQ(drawer.Draw(logits, rule, key, best), expected);
    if (best.token < 0 || rule.temperature == 0 || !ReadsChunkWeights(rule, logits.size()))
      continue;
    ++with_weights;
    std::vector<uint64_t> weights;
    for (size_t begin = 0; begin < logits.size(); begin += kDrawChunk) {
      const size_t end = std::min(begin + kDrawChunk, logits.size());
      weights.push_back(0);
      for (size_t token = begin; token < end; ++token) {
        weights.back() +=
            SoftmaxWeight(SoftmaxExponent(logits[token], best.logit, ScaleOf(rule.temperature)));
      }
    }
    EXPECT_EQ(drawer.DrawWithWeights(logits, rule, key, best, weights), expected);
  }
  EXPECT_GT(with_weights, 100);
}

TEST(TokenDrawer, TheBestIsTheLowestIdAmongEqualsInAnyChunk) {
  std::vector<float> logits(5000, -1.0f);
  logits[4999] = logits[2048] = 2;
  TokenDrawer drawer;
  EXPECT_EQ(drawer.FindBest(logits).token, 2048);
  EXPECT_EQ(drawer.FindBest(logits).logit, 2);
}

TEST(TokenDrawer, ARowWithoutATokenGivesACode) {
  TokenDrawer drawer;
  std::vector<float> logits(2000, -kInfinity);
  EXPECT_EQ(drawer.Draw(logits, {}, {}), kDrawNothingAllowed);
  for (const size_t token : {0u, 1023u, 1999u}) {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
      logits[token] = value;
      EXPECT_EQ(drawer.Draw(logits, {}, {}), kDrawNotANumber) << token;
      EXPECT_EQ(drawer.Draw(logits, {.temperature = 0}, {}), kDrawNotANumber) << token;
      logits[token] = -kInfinity;
    }
  }
  logits[1500] = -3e38f;
  EXPECT_EQ(drawer.Draw(logits, {}, {}), 1500);
}

TEST(TokenDrawer, SelectTopKeepsTheFirstByRank) {
  std::vector<RankedToken> top;
  SelectTop(std::vector<float>{1, 3, 2, 3, 2}, 3, top);
  std::sort(top.begin(), top.end(), Outranks);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].token, 1);
  EXPECT_EQ(top[1].token, 3);
  EXPECT_EQ(top[2].token, 2);
  SelectTop(std::vector<float>{1, 3}, 0, top);
  EXPECT_TRUE(top.empty());
}

}  // namespace
}  // namespace baton
