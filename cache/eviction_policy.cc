#include "cache/eviction_policy.h"

namespace baton {
namespace {

// slru protects a node from this number of uses on.
constexpr uint64_t kProtectedUses = 2;

uint64_t Rank(EvictionPolicy policy, const NodeUse& use) {
  switch (policy) {
    case EvictionPolicy::kLru:
      return 0;
    case EvictionPolicy::kLfu:
      return use.uses;
    case EvictionPolicy::kFifo:
      return use.created;
    case EvictionPolicy::kMru:
      return ~use.last_used;
    case EvictionPolicy::kFilo:
      return ~use.created;
    case EvictionPolicy::kPriority:
      return static_cast<uint64_t>(int64_t{use.priority} - INT32_MIN);
    case EvictionPolicy::kSlru:
      return use.uses >= kProtectedUses ? 1 : 0;
  }
  return 0;
}

}  // namespace

EvictionKey KeyOf(EvictionPolicy policy, const NodeUse& use) {
  return {.rank = Rank(policy, use), .last_used = use.last_used};
}

}  // namespace baton
