// Test fixture for KvCacheManager: small pools and numbered units.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "cache/kv_cache_manager.h"

namespace baton {

class KvCacheManagerTest : public testing::Test {
 protected:
  static constexpr CacheNamespace kSpace{1};
  static constexpr SequenceId kA{1}, kB{2};

  static KvCacheOptions Options(int32_t blocks, int32_t block_size = 4) {
    KvCacheOptions options;
    options.num_blocks = blocks;
    options.block_size = block_size;
    return options;
  }
  static std::vector<CacheUnit> Units(int32_t count, CacheUnit first = 0) {
    std::vector<CacheUnit> units(count);
    std::iota(units.begin(), units.end(), first);
    return units;
  }
  // Begins a sequence, reserves and commits all its units, but does not release it.
  int32_t Run(KvCacheManager& cache, SequenceId id, const std::vector<CacheUnit>& units,
              CacheNamespace space = kSpace) {
    const auto matched = cache.Begin(id, space, units, static_cast<int32_t>(units.size()));
    EXPECT_TRUE(matched.ok()) << matched.status();
    EXPECT_TRUE(cache.Reserve(id, static_cast<int32_t>(units.size())).ok());
    cache.Commit(id, std::span(units).subspan(*matched));
    EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
    return *matched;
  }

  ManualClock clock_;
};

}  // namespace baton
