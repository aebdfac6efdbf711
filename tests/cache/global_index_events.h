// Test data for the global index: named hash chains, and random events that are applied to an index
// and to the literal model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "cache/index/global_index.h"
#include "tests/cache/literal_prefix_model.h"

namespace baton {

inline constexpr IndexedWorker kA{1}, kB{2}, kC{3};
inline constexpr CacheTier kDevice = CacheTier::kDevice, kHost = CacheTier::kHost;

inline uint64_t Mix(uint64_t value) {
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

// Returns the chained hashes of a sequence of units. A number stands for each unit.
inline std::vector<Hash128> Chain(const std::vector<uint64_t>& units) {
  std::vector<Hash128> hashes;
  Hash128 hash{.low = 0x243f6a8885a308d3, .high = 0x13198a2e03707344};
  for (const uint64_t unit : units) {
    hash.low = Mix(hash.low + Mix(unit + 1));
    hash.high = Mix(hash.high ^ hash.low);
    hashes.push_back(hash);
  }
  return hashes;
}

inline std::vector<Hash128> Chain(uint64_t first, uint64_t count) {
  std::vector<uint64_t> units(count);
  for (uint64_t i = 0; i < count; ++i) units[i] = first + i;
  return Chain(units);
}

inline constexpr size_t kLeastBytes = 8192;  // size of an empty index's table

inline GlobalIndexOptions Small() {
  return {.max_blocks = 1 << 16, .expected_blocks = 0, .key_seeds = {}};
}

// Uses only the lowest 8 bits of a hash as the key. So every lookup meets entries of other blocks,
// and must compare the whole hash.
inline constexpr KeySeeds kEightBits{.first = (uint64_t{1} << 56) + 1, .second = 0};

struct IndexLoad {
  const char* name;
  bool eight_bits;  // make a key from 8 bits of a hash
  uint32_t workers;
  uint32_t longest;   // most units in a chain
  uint32_t branches;  // number of names for a unit
  int events;
  bool chained;  // false: hashes come in any order, as from a faulty worker
};

class IndexEvents {
 public:
  IndexEvents(const IndexLoad& load, uint32_t seed) : load_(load), random_(seed) {
    if (load.chained) return;
    for (int i = 0; i < 200; ++i) any_.push_back(Narrowed(Chain({random_()}))[0]);
  }

  std::vector<Hash128> Sequence() {
    std::vector<Hash128> hashes;
    if (!load_.chained) {
      hashes.resize(1 + random_() % load_.longest);
      for (Hash128& hash : hashes) hash = any_[random_() % any_.size()];
      return hashes;
    }
    // Sequences have long common beginnings, because a unit rarely differs from 0.
    std::vector<uint64_t> units(1 + random_() % load_.longest);
    for (uint64_t& unit : units) unit = random_() % 8 == 0 ? random_() % load_.branches : 0;
    return Narrowed(Chain(units));
  }

  void Next(GlobalIndex& index, LiteralPrefixModel& model) {
    const IndexedWorker worker(random_() % load_.workers);
    const auto tier = static_cast<CacheTier>(random_() % 8 == 0);
    auto hashes = Sequence();
    const uint32_t kind = random_() % 100;
    if (kind < 1) {
      index.Cleared(worker);
      model.Cleared(worker);
    } else if (kind < 45) {
      const size_t from = random_() % 4 == 0 ? random_() % hashes.size() : 0;
      const std::span<const Hash128> part = std::span(hashes).subspan(from);
      index.Stored(worker, tier, from > 0 ? std::optional(hashes[from - 1]) : std::nullopt, part);
      model.Stored(worker, tier, part);
    } else {
      switch (random_() % 4) {
        case 0:  // the end, in reverse order
          hashes.erase(hashes.begin(), hashes.begin() + random_() % hashes.size());
          std::reverse(hashes.begin(), hashes.end());
          break;
        case 1:  // the beginning of the chain
          hashes.resize(1 + random_() % hashes.size());
          break;
        case 2:  // a few hashes of any position
          std::shuffle(hashes.begin(), hashes.end(), random_);
          hashes.resize(1 + random_() % std::min<size_t>(3, hashes.size()));
          break;
        default:  // the whole chain
          break;
      }
      index.Removed(worker, tier, hashes);
      model.Removed(worker, tier, hashes);
    }
  }

 private:
  std::vector<Hash128> Narrowed(std::vector<Hash128> hashes) const {
    if (load_.eight_bits) {
      for (Hash128& hash : hashes) hash.low &= 255;
    }
    return hashes;
  }

  const IndexLoad load_;
  std::mt19937 random_;
  std::vector<Hash128> any_;
};

}  // namespace baton
