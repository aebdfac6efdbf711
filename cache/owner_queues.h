// Evictable nodes or blocks of all owners, and the order in which they are evicted.
//
// An owner that has more cached blocks than its share of the pool is over its share. The next
// victim is the entry with the lowest key of all owners that are over their share. Only if none of
// these has an entry, the lowest key of all owners counts. So a share protects an owner's cached
// blocks, but never blocks that no sequence can get otherwise. The common slot has share 0. Without
// other owners, the order is that of one EvictionQueue.
//
// Invariant: the caller adds an entry to the slot that its blocks are counted for.
//
// Cost: as EvictionQueue, and O(slots in use) for a victim.
//
// Thread safety: used by the engine thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cache/cache_owners.h"
#include "cache/eviction_policy.h"
#include "cache/eviction_queue.h"

namespace baton {

class OwnerQueues {
 public:
  // With nullptr, everything has the common slot. REQUIRES: `owners` outlives this.
  explicit OwnerQueues(const CacheOwners* owners) : owners_(owners) {}

  bool empty() const { return size_ == 0; }
  int64_t size() const { return size_; }
  bool Contains(OwnerSlot slot, int32_t entry, EvictionKey key) const {
    return queues_[slot].Contains(entry, key);
  }
  // As in EvictionQueue.
  void Push(OwnerSlot slot, int32_t entry, EvictionKey key) {
    queues_[slot].Push(entry, key);
    ++size_;
  }
  void Erase(OwnerSlot slot, int32_t entry, EvictionKey key) {
    queues_[slot].Erase(entry, key);
    --size_;
  }

  // The owner gained `blocks` cached blocks, or lost them if negative. Cached blocks that are in
  // use count too.
  void Count(OwnerSlot slot, int32_t blocks) { cached_[slot] += blocks; }
  int32_t cached(OwnerSlot slot) const { return cached_[slot]; }

  struct Victim {
    int32_t entry = 0;
    OwnerSlot slot = kCommonSlot;
    int32_t most_blocks = 0;  // evict at most so many blocks of it, then ask again
    bool over_share = true;   // its owner is over its share
  };
  // The next victim in a pool of so many blocks. REQUIRES: not empty.
  Victim First(int32_t pool_blocks) const;
  // Writes the entries of one owner in its order until `out` is full. Returns how many it wrote.
  size_t First(OwnerSlot slot, std::span<int32_t> out) const { return queues_[slot].First(out); }

 private:
  // Cached blocks above the share; negative below it.
  int32_t Excess(OwnerSlot slot, int32_t pool_blocks) const {
    return cached_[slot] - static_cast<int32_t>(owners_->share(slot) * pool_blocks);
  }

  const CacheOwners* owners_;
  std::array<EvictionQueue, CacheOwners::kSlots> queues_;
  std::array<int32_t, CacheOwners::kSlots> cached_ = {};
  int64_t size_ = 0;
};

}  // namespace baton
