#include "cache/eviction_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace baton {
namespace {

// Index of the node that is evicted first.
size_t FirstOf(EvictionPolicy policy, const std::vector<NodeUse>& nodes) {
  const auto first = std::min_element(
      nodes.begin(), nodes.end(),
      [&](const auto& a, const auto& b) { return KeyOf(policy, a) < KeyOf(policy, b); });
  return first - nodes.begin();
}

TEST(EvictionPolicy, EachPolicyChoosesItsOwnVictim) {
  const std::vector<NodeUse> nodes = {
      {.created = 5, .last_used = 20, .uses = 4, .priority = 3},   // 0: longest unused
      {.created = 6, .last_used = 30, .uses = 2, .priority = 2},   // 1: least often used
      {.created = 4, .last_used = 40, .uses = 9, .priority = 1},   // 2: oldest
      {.created = 7, .last_used = 60, .uses = 3, .priority = 0},   // 3: used last
      {.created = 9, .last_used = 50, .uses = 5, .priority = 5},   // 4: youngest
      {.created = 8, .last_used = 45, .uses = 6, .priority = -7},  // 5: lowest priority
  };
  EXPECT_EQ(FirstOf(EvictionPolicy::kLru, nodes), 0u);
  EXPECT_EQ(FirstOf(EvictionPolicy::kLfu, nodes), 1u);
  EXPECT_EQ(FirstOf(EvictionPolicy::kFifo, nodes), 2u);
  EXPECT_EQ(FirstOf(EvictionPolicy::kMru, nodes), 3u);
  EXPECT_EQ(FirstOf(EvictionPolicy::kFilo, nodes), 4u);
  EXPECT_EQ(FirstOf(EvictionPolicy::kPriority, nodes), 5u);
}

TEST(EvictionPolicy, SlruEvictsNodesUsedOnceBeforeOlderNodesUsedAgain) {
  const std::vector<NodeUse> nodes = {{.last_used = 1, .uses = 2},
                                      {.last_used = 9, .uses = 1},
                                      {.last_used = 8, .uses = 1},
                                      {.last_used = 2, .uses = 7}};
  EXPECT_EQ(FirstOf(EvictionPolicy::kSlru, nodes), 2u);
  EXPECT_EQ(FirstOf(EvictionPolicy::kSlru, {nodes[3], nodes[0]}), 1u)
      << "LRU order among protected nodes";
}

TEST(EvictionPolicy, TiesGoToTheLeastRecentlyUsed) {
  for (const EvictionPolicy policy :
       {EvictionPolicy::kLru, EvictionPolicy::kLfu, EvictionPolicy::kFifo, EvictionPolicy::kFilo,
        EvictionPolicy::kPriority, EvictionPolicy::kSlru}) {
    const std::vector<NodeUse> nodes = {{.last_used = 2}, {.last_used = 1}, {.last_used = 3}};
    EXPECT_EQ(FirstOf(policy, nodes), 1u) << static_cast<int>(policy);
  }
}

TEST(EvictionPolicy, PrioritiesOrderOverTheirWholeRange) {
  const std::vector<NodeUse> nodes = {
      {.priority = INT32_MAX}, {.priority = 0}, {.priority = INT32_MIN}, {.priority = -1}};
  EXPECT_EQ(FirstOf(EvictionPolicy::kPriority, nodes), 2u);
  EXPECT_LT(KeyOf(EvictionPolicy::kPriority, nodes[3]), KeyOf(EvictionPolicy::kPriority, nodes[1]));
  EXPECT_LT(KeyOf(EvictionPolicy::kPriority, nodes[1]), KeyOf(EvictionPolicy::kPriority, nodes[0]));
}

}  // namespace
}  // namespace baton
