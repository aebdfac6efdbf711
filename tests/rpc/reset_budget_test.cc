#include "rpc/reset_budget.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr int64_t kSecond = 1'000'000;
constexpr ResetLimits kLimits{.unanswered = 1000, .per_second = 100};

TEST(ResetBudget, AConnectionMayHaveTheLimitButNotMore) {
  ResetBudget budget(kLimits);
  EXPECT_FALSE(budget.IsExceeded(1, 1000, 0));
  EXPECT_TRUE(budget.IsExceeded(1, 1001, 0));
  EXPECT_FALSE(budget.IsExceeded(2, 1000, 0)) << "the other connection's calls are its own";
}

TEST(ResetBudget, AStormIsNoticedAlsoIfItBeganBeforeTheFirstLook) {
  ResetBudget budget(kLimits);
  EXPECT_TRUE(budget.IsExceeded(1, 5000, 77 * kSecond));
}

TEST(ResetBudget, ResetsAtTheAllowedRateAreNeverTooMany) {
  ResetBudget budget(kLimits);
  for (int64_t second = 0; second < 10'000; ++second) {
    ASSERT_FALSE(budget.IsExceeded(1, 100 * second, second * kSecond)) << second;
  }
  // Twice the rate fills the budget in ten seconds.
  int64_t second = 0;
  while (!budget.IsExceeded(2, 200 * second, second * kSecond)) ++second;
  EXPECT_EQ(second, 11);
}

TEST(ResetBudget, AnsweredCallsAreFree) {
  ResetBudget budget(kLimits);
  for (int64_t tick = 0; tick < 1000; ++tick) {
    // 900 calls begin; before the next look they are answered.
    ASSERT_FALSE(budget.IsExceeded(1, 900, tick * 1000)) << tick;
    ASSERT_FALSE(budget.IsExceeded(1, 0, tick * 1000 + 500)) << tick;
  }
}

// A call's answer long after its beginning gives no credit for later resets.
TEST(ResetBudget, LateAnswersAreNoCredit) {
  ResetBudget budget(kLimits);
  EXPECT_FALSE(budget.IsExceeded(1, 1000, 0));
  EXPECT_FALSE(budget.IsExceeded(1, 1000, 100 * kSecond));
  EXPECT_FALSE(budget.IsExceeded(1, 0, 101 * kSecond));
  EXPECT_TRUE(budget.IsExceeded(1, 1001, 101 * kSecond));
}

TEST(ResetBudget, ForgetsConnectionsThatHaveEnded) {
  ResetBudget budget(kLimits);
  for (int64_t connection = 0; connection < 10; ++connection) {
    budget.IsExceeded(connection, 1, connection < 4 ? 5 : 6);
  }
  budget.ForgetSeenBefore(6);
  EXPECT_EQ(budget.size(), 6u);
}

}  // namespace
}  // namespace baton
