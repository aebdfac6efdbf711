#include "routing/load_policies.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "tests/routing/fleet.h"

namespace baton {
namespace {

class LoadPoliciesTest : public ::testing::Test {
 protected:
  void AddDecodeWorkers(int count) {
    for (int i = 0; i < count; ++i) fleet_.Add(WorkerRole::kDecode);
  }
  uint32_t Next(RoutingPolicy& policy) {
    return policy.Choose(input_, fleet_.View())->decode.value();
  }

  RoutingInput input_{.prompt_tokens = 100, .cached_tokens = {}, .excluded = {}};
  Fleet fleet_;
};

TEST_F(LoadPoliciesTest, RoundRobinTakesTurnsWhileWorkersLeaveAndJoin) {
  AddDecodeWorkers(3);
  RoundRobinPolicy policy{RoutingOptions()};
  for (const uint32_t want : {1, 2, 3, 1}) EXPECT_EQ(Next(policy), want);
  fleet_.Remove(WorkerNumber(2));
  for (const uint32_t want : {3, 1, 3}) EXPECT_EQ(Next(policy), want);
  fleet_.Add(WorkerRole::kDecode).number = WorkerNumber(9);
  for (const uint32_t want : {9, 1, 3, 9}) EXPECT_EQ(Next(policy), want);
}

TEST_F(LoadPoliciesTest, RoundRobinRotatesThroughEachRoleSeparately) {
  AddDecodeWorkers(2);
  fleet_.Add(WorkerRole::kPrefill);
  fleet_.Add(WorkerRole::kPrefill);
  fleet_.Add(WorkerRole::kPrefill);
  input_.placement = Placement::kRemote;
  RoundRobinPolicy policy{RoutingOptions()};
  for (const auto& [decode, prefill] : {std::pair<uint32_t, uint32_t>(1, 3), {2, 4}, {1, 5}}) {
    const auto plan = policy.Choose(input_, fleet_.View());
    EXPECT_EQ(plan->decode, WorkerNumber(decode));
    EXPECT_EQ(plan->prefill, WorkerNumber(prefill));
  }
}

TEST_F(LoadPoliciesTest, RandomUsesAllAboutEquallyAndRepeatsFromItsSeed) {
  AddDecodeWorkers(4);
  RandomPolicy one({.seed = 5});
  RandomPolicy two({.seed = 5});
  std::map<uint32_t, int> count;
  for (int i = 0; i < 4000; ++i) {
    const uint32_t chosen = Next(one);
    ASSERT_EQ(Next(two), chosen);
    ++count[chosen];
  }
  for (const auto& [worker, times] : count) EXPECT_NEAR(times, 1000, 150) << worker;
  EXPECT_EQ(count.size(), 4u);
}

TEST_F(LoadPoliciesTest, LeastLoadedComparesRequestsThenPendingPrefill) {
  AddDecodeWorkers(3);
  LeastLoadedPolicy policy{RoutingOptions()};
  fleet_.workers[0].active = 2;
  fleet_.workers[1].others = 1;
  fleet_.workers[2].active = 1;
  fleet_.workers[1].pending.us = 10;
  EXPECT_EQ(Next(policy), 3u);
  fleet_.workers[2].pending.us = 20;
  EXPECT_EQ(Next(policy), 2u);
  input_.cached_tokens[WorkerNumber(1)] = 99;  // has no effect
  EXPECT_EQ(Next(policy), 2u);
}

TEST_F(LoadPoliciesTest, PowerOfTwoChoosesAnyWorkerButTheMostLoaded) {
  AddDecodeWorkers(4);
  for (int i = 0; i < 4; ++i) fleet_.workers[i].active = i;
  PowerOfTwoPolicy policy({.seed = 5});
  std::map<uint32_t, int> count;
  for (int i = 0; i < 6000; ++i) ++count[Next(policy)];
  // The least loaded wins three of the six pairs, the second two, the third one.
  EXPECT_NEAR(count[1], 3000, 300);
  EXPECT_NEAR(count[2], 2000, 300);
  EXPECT_NEAR(count[3], 1000, 300);
  EXPECT_EQ(count[4], 0);
}

TEST_F(LoadPoliciesTest, PowerOfTwoWorksWithOneWorker) {
  AddDecodeWorkers(1);
  PowerOfTwoPolicy policy({.seed = 5});
  EXPECT_EQ(Next(policy), 1u);
}

}  // namespace
}  // namespace baton
