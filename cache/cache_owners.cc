#include "cache/cache_owners.h"

namespace baton {

OwnerSlot CacheOwners::SlotOf(const CacheOwner& owner) {
  CHECK(owner.share > 0 && owner.share <= 1) << "share " << owner.share;
  OwnerSlot found = kCommonSlot;
  for (OwnerSlot slot = 1; slot < kSlots; ++slot) {
    const bool unused = slots_[slot].namespaces == 0;
    if (!unused && slots_[slot].id == owner.id) {
      found = slot;
      break;
    }
    if (unused && found == kCommonSlot) found = slot;
    if (slot >= end_ && found != kCommonSlot) break;  // all slots from here on are unused
  }
  if (found == kCommonSlot) return found;
  slots_[found].id = owner.id;
  slots_[found].share = owner.share;
  return found;
}

void CacheOwners::AddNamespace(OwnerSlot slot) {
  if (slot == kCommonSlot) return;
  ++slots_[slot].namespaces;
  end_ = std::max<OwnerSlot>(end_, slot + 1);
}

void CacheOwners::RemoveNamespace(OwnerSlot slot) {
  if (slot == kCommonSlot) return;
  CHECK_GT(slots_[slot].namespaces, 0) << "slot " << int{slot} << " has no namespace";
  if (--slots_[slot].namespaces > 0) return;
  slots_[slot] = {};
  while (end_ > 1 && slots_[end_ - 1].namespaces == 0) --end_;
}

}  // namespace baton
