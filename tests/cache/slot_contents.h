// What the slots of a cache's pools contain, for tests: one hash for each slot of each group.
//
// A slot that a token was written to has the hash of all units of its sequence up to that token. So
// a test can see whether a slot holds the KV that a reader expects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache/kv_cache_manager.h"

namespace baton {

class SlotContents {
 public:
  SlotContents(const KvCacheManager& cache, int32_t block_size) : block_size_(block_size) {
    for (int32_t group = 0; group < cache.groups(); ++group) {
      slots_.emplace_back(size_t(cache.max_blocks(group)) * block_size);
    }
  }

  // Returns the hash of a slot from the hash of the slot before it. The first slot's is that of the
  // namespace.
  static uint64_t Chain(uint64_t before, CacheUnit unit) {
    return (before * 31 + unit + 1) * 0x9E3779B97F4A7C15ull;
  }

  // Returns the slot of a sequence that lies in `block`.
  uint64_t& At(int32_t group, BlockId block, int32_t slot) {
    return slots_[group][size_t(block.value()) * block_size_ + slot % block_size_];
  }
  // Returns nothing if the table has no block for the slot.
  std::optional<uint64_t> Read(int32_t group, std::span<const BlockId> table, int32_t slot) {
    const BlockId block = table[slot / block_size_];
    if (block == kNoBlock) return std::nullopt;
    return At(group, block, slot);
  }
  void Copy(const std::vector<BlockCopy>& copies) {
    for (const BlockCopy& copy : copies) {
      for (int32_t i = 0; i < copy.tokens; ++i) {
        At(copy.group, copy.to, i) = At(copy.group, copy.from, i);
      }
    }
  }

 private:
  const int32_t block_size_;
  std::vector<std::vector<uint64_t>> slots_;  // by group
};

}  // namespace baton
