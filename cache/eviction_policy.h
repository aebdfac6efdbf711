// Eviction policies of the prefix cache. A policy is a rule for the sort key of a node.
//
// | policy   | evicts first                                                                      |
// |----------|-----------------------------------------------------------------------------------|
// | lru      | the least recently used node                                                      |
// | lfu      | the least often used node                                                         |
// | fifo     | the oldest node                                                                   |
// | mru      | the most recently used node                                                       |
// | filo     | the youngest node                                                                 |
// | priority | the node with the lowest priority                                                 |
// | slru     | the least recently used node of those used once, then of those used again         |
//
// Under every policy, ties go to the least recently used node. So `priority` is `lru` while all
// priorities are equal. A node's priority is the highest that a sequence used it with, and it keeps
// it until eviction. These are the policies of SGLang's radix cache. slru is segmented LRU (Karedla
// et al., 1994) without a bound on the protected segment: a node is protected from its second use
// on.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <compare>
#include <cstdint>

namespace baton {

enum class EvictionPolicy : uint8_t { kLru, kLfu, kFifo, kMru, kFilo, kPriority, kSlru };
inline constexpr int kEvictionPolicies = 7;

// Use of a tree node or a window block, as all policies need it. Times are ticks of the tree's own
// counter.
struct NodeUse {
  uint64_t created = 0;
  uint64_t last_used = 0;        // when it was last unlocked or released
  uint64_t uses = 0;             // how often a sequence locked or held it, the creator included
  int32_t priority = INT32_MIN;  // the highest priority of those sequences
  bool operator==(const NodeUse&) const = default;
};

// The node with the lowest key is evicted first.
struct EvictionKey {
  uint64_t rank = 0;
  uint64_t last_used = 0;
  auto operator<=>(const EvictionKey&) const = default;
};

EvictionKey KeyOf(EvictionPolicy policy, const NodeUse& use);

}  // namespace baton
