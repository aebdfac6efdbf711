#include "cache/owner_queues.h"

#include <optional>
#include <utility>

namespace baton {

OwnerQueues::Victim OwnerQueues::First(int32_t pool_blocks) const {
  if (owners_ == nullptr || !owners_->any()) {
    return {.entry = queues_[kCommonSlot].First(),
            .slot = kCommonSlot,
            .most_blocks = cached_[kCommonSlot]};
  }
  std::optional<Victim> victim;
  std::pair<EvictionKey, int32_t> lowest;  // on equal keys, the lower entry
  bool over_share = false;
  for (OwnerSlot slot = 0; slot < owners_->end(); ++slot) {
    if (queues_[slot].empty()) continue;
    const int32_t excess = Excess(slot, pool_blocks);
    if (over_share && excess <= 0) continue;
    const std::pair key(queues_[slot].FirstKey(), queues_[slot].First());
    const bool first_over_share = excess > 0 && !over_share;
    if (victim.has_value() && !first_over_share && key >= lowest) continue;
    over_share = excess > 0;
    lowest = key;
    victim = {.entry = key.second,
              .slot = slot,
              .most_blocks = over_share ? excess : cached_[slot],
              .over_share = over_share};
  }
  return *victim;
}

}  // namespace baton
