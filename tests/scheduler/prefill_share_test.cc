#include "scheduler/prefill_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int32_t> Share(std::vector<int32_t> remaining, int32_t budget, int32_t max_chunk) {
  std::vector<PrefillDemand> line;
  for (const int32_t tokens : remaining) line.push_back({.priority = 0, .remaining = tokens});
  return SharePrefillBudget(line, budget, max_chunk);
}

TEST(PrefillShare, ASinglePromptGetsTheBudgetUpToItsChunkLimit) {
  EXPECT_THAT(Share({8000}, 512, 512), ElementsAre(512));
  EXPECT_THAT(Share({8000}, 512, 64), ElementsAre(64));
  EXPECT_THAT(Share({30}, 512, 64), ElementsAre(30));
  EXPECT_THAT(Share({}, 512, 64), IsEmpty());
}

TEST(PrefillShare, ShortPromptsPassALongOneInHalfOfTheBudget) {
  EXPECT_THAT(Share({8000, 50, 20}, 512, 512), ElementsAre(442, 50, 20));
  EXPECT_THAT(Share({8000, 400, 200}, 512, 512), ElementsAre(256, 56, 200));
}

TEST(PrefillShare, EqualPromptsRunOneAfterTheOther) {
  EXPECT_THAT(Share({520, 520, 520}, 512, 512), ElementsAre(512, 0, 0));
  EXPECT_THAT(Share({8, 520, 520}, 512, 512), ElementsAre(8, 504, 0));
}

TEST(PrefillShare, ALowerPriorityNeverPassesAHigherOne) {
  const std::vector<PrefillDemand> line = {{.priority = 1, .remaining = 8000},
                                           {.priority = 0, .remaining = 5}};
  EXPECT_THAT(SharePrefillBudget(line, 512, 512), ElementsAre(512, 0));
  EXPECT_THAT(SharePrefillBudget(line, 512, 256), ElementsAre(256, 5));
}

TEST(PrefillShare, TheFirstPromptAlwaysProgressesAndNoUsableTokenIsWasted) {
  std::mt19937 random(11);
  for (int round = 0; round < 100'000; ++round) {
    std::vector<int32_t> remaining(1 + random() % 8);
    for (int32_t& tokens : remaining) tokens = 1 + random() % 40;
    const int32_t budget = 1 + random() % 64, max_chunk = 1 + random() % 40;
    const std::vector<int32_t> share = Share(remaining, budget, max_chunk);
    int32_t demand = 0;
    for (size_t i = 0; i < share.size(); ++i) {
      ASSERT_GE(share[i], 0);
      ASSERT_LE(share[i], std::min(remaining[i], max_chunk));
      demand += std::min(remaining[i], max_chunk);
    }
    ASSERT_EQ(std::accumulate(share.begin(), share.end(), 0), std::min(budget, demand));
    ASSERT_GE(share[0], std::min({remaining[0], max_chunk, (budget + 1) / 2}));
  }
}

}  // namespace
}  // namespace baton
