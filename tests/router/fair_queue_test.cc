#include "router/fair_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace baton {
namespace {

using ::testing::ElementsAre;

std::vector<uint64_t> PopAll(FairQueue& queue) {
  std::vector<uint64_t> out;
  while (const auto id = queue.Pop()) out.push_back(*id);
  return out;
}

TEST(FairQueue, OneTenantsRequestsKeepTheirOrder) {
  FairQueue queue;
  for (uint64_t id = 0; id < 4; ++id) queue.Push(id, "a", 0, 1, 10);
  EXPECT_EQ(queue.size(), 4u);
  EXPECT_THAT(PopAll(queue), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(queue.Pop(), std::nullopt);
}

TEST(FairQueue, ATenantWithOneRequestDoesNotWaitBehindAnotherOnesMany) {
  FairQueue queue;
  for (uint64_t id = 0; id < 10; ++id) queue.Push(id, "flood", 0, 1, 10);
  EXPECT_EQ(queue.Pop(), 0u);
  EXPECT_EQ(queue.Pop(), 1u);
  queue.Push(100, "b", 0, 1, 10);
  EXPECT_EQ(queue.Pop(), 100u);
  EXPECT_EQ(queue.Pop(), 2u);
}

TEST(FairQueue, AHigherPriorityGoesFirstWhateverTheShares) {
  FairQueue queue;
  queue.Push(1, "a", 0, 1000, 1);
  for (uint64_t id = 10; id < 14; ++id) queue.Push(id, "b", 5, 0.001, 1000);
  EXPECT_THAT(PopAll(queue), ElementsAre(10, 11, 12, 13, 1));
}

TEST(FairQueue, WeightsShareTheTokensNotTheRequests) {
  FairQueue queue;
  uint64_t id = 0;
  std::map<uint64_t, std::pair<std::string, double>> requests;
  const auto push = [&](const std::string& tenant, double weight, double cost) {
    requests[id] = {tenant, cost};
    queue.Push(id++, tenant, 0, weight, cost);
  };
  for (int i = 0; i < 3000; ++i) {
    push("small", 1, 10);
    push("large", 1, 100);
    push("heavy", 2, 20);
  }
  std::map<std::string, double> served;
  double total = 0;
  while (total < 40'000) {  // all three still wait
    const auto& [tenant, cost] = requests[*queue.Pop()];
    served[tenant] += cost;
    total += cost;
  }
  EXPECT_NEAR(served["small"] / total, 0.25, 0.01);
  EXPECT_NEAR(served["large"] / total, 0.25, 0.01);
  EXPECT_NEAR(served["heavy"] / total, 0.5, 0.01);
}

TEST(FairQueue, ASilentTenantSavesNoCredit) {
  FairQueue queue;
  for (uint64_t id = 0; id < 100; ++id) {
    queue.Push(id, "a", 0, 1, 10);
    queue.Pop();
  }
  for (uint64_t id = 100; id < 104; ++id) queue.Push(id, "a", 0, 1, 10);
  for (uint64_t id = 200; id < 204; ++id) queue.Push(id, "b", 0, 1, 10);
  const std::vector<uint64_t> order = PopAll(queue);
  // b may go first, once, but not with all of its requests.
  EXPECT_NE(order[2] / 100, order[3] / 100);
}

TEST(FairQueue, ARequestThatGivesUpCostsNothing) {
  FairQueue queue;
  queue.Push(1, "a", 0, 1, 1000);
  queue.Push(2, "b", 0, 1, 10);
  EXPECT_TRUE(queue.Remove(1));
  EXPECT_FALSE(queue.Remove(1));
  EXPECT_EQ(queue.size(), 1u);
  queue.Push(3, "a", 0, 1, 10);
  EXPECT_THAT(PopAll(queue), ElementsAre(2, 3));
}

TEST(FairQueue, TheRealCostDecidesWhoGoesNext) {
  FairQueue queue;
  queue.Push(1, "a", 0, 1, 1000);
  queue.Push(2, "b", 0, 1, 100);
  EXPECT_EQ(queue.Pop(), 1u);
  EXPECT_EQ(queue.Pop(), 2u);
  queue.Correct("a", 0, 1, -990);  // it used 10
  queue.Push(3, "b", 0, 1, 100);
  queue.Push(4, "a", 0, 1, 100);
  EXPECT_EQ(queue.Pop(), 4u);
  queue.Correct("unknown", 0, 1, -1);
  queue.Correct("a", 7, 1, -1);
}

TEST(FairQueue, IdleTenantsAreForgotten) {
  FairQueue queue;
  queue.Push(1, "a", 0, 1, 1000);
  queue.Pop();
  queue.ForgetIdle();
  queue.Push(2, "b", 0, 1, 10);
  queue.Push(3, "a", 0, 1, 10);
  queue.ForgetIdle();  // tenants with requests stay
  EXPECT_THAT(PopAll(queue), ElementsAre(2, 3)) << "a's debt ended with the queue";
}

TEST(FairQueue, RandomOrdersLoseAndRepeatNothing) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  FairQueue queue;
  std::map<uint64_t, int32_t> waiting;  // id: priority
  uint64_t next = 0;
  for (int i = 0; i < 20'000; ++i) {
    switch (random() % 5) {
      case 0:
      case 1: {
        const auto priority = static_cast<int32_t>(random() % 3);
        queue.Push(next, std::string(1, static_cast<char>('a' + random() % 4)), priority,
                   0.5 + static_cast<double>(random() % 4), static_cast<double>(random() % 100));
        waiting[next++] = priority;
        break;
      }
      case 2: {
        const auto id = queue.Pop();
        ASSERT_EQ(id.has_value(), !waiting.empty());
        if (!id) break;
        const int32_t priority = waiting.at(*id);
        for (const auto& [other, its] : waiting) ASSERT_LE(its, priority) << other;
        waiting.erase(*id);
        break;
      }
      case 3: {
        const uint64_t id = next == 0 ? 0 : random() % next;
        ASSERT_EQ(queue.Remove(id), waiting.erase(id) == 1);
        break;
      }
      case 4:
        queue.Correct(std::string(1, static_cast<char>('a' + random() % 4)),
                      static_cast<int32_t>(random() % 3), 1,
                      static_cast<double>(random() % 50) - 25);
        if (random() % 8 == 0) queue.ForgetIdle();
        break;
    }
    ASSERT_EQ(queue.size(), waiting.size());
  }
}

TEST(FairQueue, AheadAreTheRequestsThatGoBeforeANewOne) {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const std::string tenants[] = {"a", "b", "c"};
    FairQueue queue;
    for (uint64_t id = 0; id < 60; ++id) {
      const std::string& tenant = tenants[random() % 3];
      const auto priority = static_cast<int32_t>(random() % 2);
      const size_t expected = queue.Ahead(tenant, priority);
      if (id == 59) {
        queue.Push(id, tenant, priority, 1, 10);
        const std::vector<uint64_t> order = PopAll(queue);
        EXPECT_EQ(std::find(order.begin(), order.end(), id) - order.begin(), expected);
      } else {
        queue.Push(id, tenant, priority, 1 + random() % 3, random() % 50);
        if (random() % 3 == 0) queue.Pop();
      }
    }
  }
}

TEST(FairQueue, AFloodIsNotAheadOfAnotherTenant) {
  FairQueue queue;
  EXPECT_EQ(queue.Ahead("a", 0), 0u);
  for (uint64_t id = 0; id < 100; ++id) queue.Push(id, "flood", 0, 1, 10);
  EXPECT_EQ(queue.Ahead("flood", 0), 100u);
  EXPECT_LE(queue.Ahead("b", 0), 1u);
  EXPECT_EQ(queue.Ahead("b", -1), 100u);
  EXPECT_EQ(queue.Ahead("flood", 1), 0u);
}

}  // namespace
}  // namespace baton
