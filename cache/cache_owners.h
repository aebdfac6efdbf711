// Owners of cached blocks, and the shares of the pool that are protected for them.
//
// An owner is a tenant with a share. It gets a slot, and each namespace of the prefix tree has the
// slot of its owner. All other namespaces have the common slot, which has no share. So a
// client that invents names of tenants does not use up slots.
//
// A slot is in use while a namespace has it. An owner whose share becomes 0 keeps its slot until
// then. So two routers that disagree about a share do not move namespaces between slots.
//
// Invariants:
//  1. Two slots in use never have equal ids.
//  2. Slots without a namespace have share 0. The common slot always has share 0.
//
// Thread safety: used by the engine thread only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "common/check.h"

namespace baton {

// The owner of a request's namespace, and its share of each pool of KV blocks.
struct CacheOwner {
  uint64_t id = 0;
  double share = 0;  // 0–1; 0: nothing is protected
  bool operator==(const CacheOwner&) const = default;
};

using OwnerSlot = uint8_t;
inline constexpr OwnerSlot kCommonSlot = 0;

class CacheOwners {
 public:
  // Owners that can have a share at one time. Further ones have the common slot.
  static constexpr int kMaxOwners = 64;
  static constexpr int kSlots = 1 + kMaxOwners;

  // False while all namespaces have the common slot.
  bool any() const { return end_ > 1; }
  // All slots in use are below it.
  OwnerSlot end() const { return end_; }
  double share(OwnerSlot slot) const { return slots_[slot].share; }
  int64_t namespaces(OwnerSlot slot) const { return slots_[slot].namespaces; }

  // Returns the owner's slot and sets its share. It takes an unused slot if it has none, and the
  // common slot if there is none. REQUIRES: 0 < owner.share <= 1 (CHECK).
  OwnerSlot SlotOf(const CacheOwner& owner);
  // The owner has no share any more.
  void DropShare(OwnerSlot slot) { slots_[slot].share = 0; }

  // A namespace has the slot from now on, or no longer. Namespaces of the common slot are not
  // counted. REQUIRES: RemoveNamespace: the slot has a namespace (CHECK).
  void AddNamespace(OwnerSlot slot);
  void RemoveNamespace(OwnerSlot slot);

 private:
  struct Slot {
    uint64_t id = 0;
    double share = 0;
    int64_t namespaces = 0;
  };
  std::array<Slot, kSlots> slots_ = {};
  OwnerSlot end_ = 1;
};

}  // namespace baton
