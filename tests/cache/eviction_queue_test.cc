#include "cache/eviction_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace baton {
namespace {

TEST(EvictionQueue, GivesTheOldestFirst) {
  EvictionQueue queue;
  queue.Push(4, 30);
  queue.Push(0, 10);
  queue.Push(2, 20);
  EXPECT_EQ(queue.Min(), 0);
  queue.Erase(0);
  EXPECT_EQ(queue.Min(), 2);
  EXPECT_FALSE(queue.Contains(0));
  EXPECT_FALSE(queue.Contains(99));
}

TEST(EvictionQueue, AgreesWithAnOrderedMapOverRandomOperations) {
  const uint32_t seed = 7;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  EvictionQueue queue;
  std::map<uint64_t, int32_t> by_tick;
  std::map<int32_t, uint64_t> by_node;
  uint64_t used = 0;
  for (int step = 0; step < 200'000; ++step) {
    const int32_t node = random() % 200;
    ASSERT_EQ(queue.Contains(node), by_node.contains(node));
    if (by_node.contains(node)) {
      queue.Erase(node);
      by_tick.erase(by_node[node]);
      by_node.erase(node);
    } else {
      const uint64_t tick = (uint64_t{random()} << 32) | ++used;
      queue.Push(node, tick);
      by_tick[tick] = node;
      by_node[node] = tick;
    }
    ASSERT_EQ(queue.size(), static_cast<int32_t>(by_node.size()));
    ASSERT_EQ(queue.empty(), by_node.empty());
    if (!by_tick.empty()) {
      ASSERT_EQ(queue.Min(), by_tick.begin()->second);
    }
  }
}

}  // namespace
}  // namespace baton
