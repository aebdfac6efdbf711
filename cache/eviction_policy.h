// Which cached prefix goes first when blocks are needed: a policy is a meaning of the sort key.
//
// | policy   | goes first                                                                        |
// |----------|-----------------------------------------------------------------------------------|
// | lru      | the least recently used                                                           |
// | lfu      | the least often used                                                              |
// | fifo     | the oldest                                                                        |
// | mru      | the most recently used                                                            |
// | filo     | the youngest                                                                      |
// | priority | the one whose most important user mattered least                                  |
// | slru     | the least recently used of what was used once, then of what was used again        |
//
// Ties go to the least recently used, under every policy: while all priorities are equal,
// `priority` is `lru`. A prefix keeps the highest priority that it was used with until it is
// evicted. These are the policies of SGLang's radix cache; slru is segmented LRU (Karedla et al.,
// 1994) without a bound on the protected segment: a prefix is protected from its second use on.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <compare>
#include <cstdint>

namespace baton {

enum class EvictionPolicy : uint8_t { kLru, kLfu, kFifo, kMru, kFilo, kPriority, kSlru };
inline constexpr int kEvictionPolicies = 7;

// What a node remembers for all policies; times are ticks of its tree's own counter.
struct NodeUse {
  uint64_t created = 0;
  uint64_t last_used = 0;        // when the last sequence or transfer let go of it
  uint64_t uses = 0;             // how often a sequence came to hold it, its creator's included
  int32_t priority = INT32_MIN;  // the highest of those sequences
  bool operator==(const NodeUse&) const = default;
};

// Lower keys go first.
struct EvictionKey {
  uint64_t rank = 0;
  uint64_t last_used = 0;
  auto operator<=>(const EvictionKey&) const = default;
};

EvictionKey KeyOf(EvictionPolicy policy, const NodeUse& use);

}  // namespace baton
