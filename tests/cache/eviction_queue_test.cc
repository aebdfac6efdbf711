#include "cache/eviction_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>

#include "tests/common/random_operations.h"

namespace baton {
namespace {

TEST(EvictionQueue, GivesTheLowestKeyFirst) {
  EvictionQueue queue;
  queue.Push(4, {.rank = 1, .last_used = 5});
  queue.Push(0, {.rank = 0, .last_used = 9});
  queue.Push(2, {.rank = 0, .last_used = 8});
  EXPECT_EQ(queue.First(), 2);
  queue.Erase(2, {.rank = 0, .last_used = 8});
  EXPECT_EQ(queue.First(), 0);
  EXPECT_FALSE(queue.Contains(2, {.rank = 0, .last_used = 8}));
  EXPECT_FALSE(queue.Contains(4, {.rank = 1, .last_used = 6}));
  EXPECT_TRUE(queue.Contains(4, {.rank = 1, .last_used = 5}));
}

TEST(EvictionQueueDeathTest, MisuseIsABug) {
  EvictionQueue queue;
  queue.Push(1, {.rank = 1, .last_used = 1});
  EXPECT_DEATH(queue.Push(1, {.rank = 1, .last_used = 1}), "queued already");
  EXPECT_DEATH(queue.Erase(1, {.rank = 2, .last_used = 1}), "not queued");
}

TEST(EvictionQueue, AgreesWithAnOrderedMapOverRandomOperations) {
  const uint32_t seed = 7;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  EvictionQueue queue;
  std::map<std::pair<uint64_t, uint64_t>, int32_t> by_key;
  std::map<int32_t, std::pair<uint64_t, uint64_t>> by_node;
  uint64_t used = 0;
  constexpr int kSteps = 500'000;
  for (int step = 0; step < kSteps; ++step) {
    const int32_t node = random() % 200;
    if (const auto it = by_node.find(node); it != by_node.end()) {
      const auto [rank, tick] = it->second;
      ASSERT_TRUE(queue.Contains(node, {.rank = rank, .last_used = tick}));
      queue.Erase(node, {.rank = rank, .last_used = tick});
      by_key.erase(it->second);
      by_node.erase(it);
    } else {
      const std::pair<uint64_t, uint64_t> key = {random() % 5, ++used};
      queue.Push(node, {.rank = key.first, .last_used = key.second});
      by_key[key] = node;
      by_node[node] = key;
    }
    ASSERT_EQ(queue.size(), static_cast<int64_t>(by_node.size()));
    ASSERT_EQ(queue.empty(), by_node.empty());
    if (!by_key.empty()) {
      ASSERT_EQ(queue.First(), by_key.begin()->second);
    }
  }
  ReportRandomOperations(kSteps);
}

TEST(EvictionQueue, NamesTheFirstFewInOrder) {
  EvictionQueue queue;
  std::array<int32_t, 3> first{};
  EXPECT_EQ(queue.First(first), 0u);
  for (const int32_t node : {4, 2, 9, 7}) {
    queue.Push(node, {.rank = 0, .last_used = static_cast<uint64_t>(100 - node)});
  }
  EXPECT_EQ(queue.First(first), 3u);
  EXPECT_EQ(first, (std::array<int32_t, 3>{9, 7, 4}));
  EXPECT_EQ(queue.size(), 4) << "First removes nothing";
}

}  // namespace
}  // namespace baton
