#include "cache/kv_cache_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr CacheNamespace kSpace{1};
constexpr SequenceId kA{1}, kB{2};

KvCacheOptions Options(int32_t blocks, int32_t block_size = 4) {
  KvCacheOptions options;
  options.num_blocks = blocks;
  options.block_size = block_size;
  return options;
}

std::vector<CacheUnit> Units(int32_t count, CacheUnit first = 0) {
  std::vector<CacheUnit> units(count);
  std::iota(units.begin(), units.end(), first);
  return units;
}

class KvCacheManagerTest : public testing::Test {
 protected:
  // A whole life but its end.
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

TEST_F(KvCacheManagerTest, AReleasedSequenceIsMatchedUpToItsLastFullBlock) {
  KvCacheManager cache(Options(16), &clock_);
  EXPECT_EQ(Run(cache, kA, Units(10)), 0);
  cache.Release(kA, true);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(12)), 8);
  EXPECT_EQ(Run(cache, kA, Units(12)), 8);
  cache.Release(kA, false);
  EXPECT_EQ(cache.available_blocks(), 16);
}

TEST_F(KvCacheManagerTest, AMatchLeavesAtLeastOneTokenToCompute) {
  for (const int32_t block_size : {1, 4, 16}) {
    KvCacheManager cache(Options(64, block_size), &clock_);
    Run(cache, kA, Units(64));
    cache.Release(kA, true);
    for (const int32_t blocks : {1, 2, 3}) {
      const int32_t exact = blocks * block_size;
      EXPECT_EQ(cache.PeekMatch(kSpace, Units(exact)), exact - block_size);
      EXPECT_EQ(cache.PeekMatch(kSpace, Units(exact + 1)), exact);
      EXPECT_EQ(Run(cache, kB, Units(exact)), exact - block_size);
      cache.Release(kB, true);
    }
  }
}

TEST_F(KvCacheManagerTest, OnlyCommittedTokensAreCached) {
  KvCacheManager cache(Options(16), &clock_);
  ASSERT_TRUE(cache.Begin(kA, kSpace, Units(16), 16).ok());
  ASSERT_TRUE(cache.Reserve(kA, 16).ok());
  cache.Commit(kA, Units(7));
  cache.Release(kA, true);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(16)), 4);
}

TEST_F(KvCacheManagerTest, NamespacesNeverShare) {
  KvCacheManager cache(Options(16), &clock_);
  Run(cache, kA, Units(12));
  cache.Release(kA, true);
  EXPECT_EQ(cache.PeekMatch(CacheNamespace(2), Units(12)), 0);
  EXPECT_EQ(Run(cache, kB, Units(12), CacheNamespace(2)), 0);
}

TEST_F(KvCacheManagerTest, DuplicatesAreSwappedForTheTreesBlocksAndFreed) {
  KvCacheManager cache(Options(16), &clock_);
  Run(cache, kA, Units(9));
  Run(cache, kB, Units(9));  // side by side: nothing was cached yet
  cache.InsertCommitted(kA);
  EXPECT_EQ(cache.Stats().blocks.free, 10);
  cache.InsertCommitted(kB);
  EXPECT_EQ(cache.Stats().blocks.free, 12);
  EXPECT_EQ(cache.shared_tokens(kB), 8);
  for (const int i : {0, 1}) EXPECT_EQ(cache.BlockTable(kA)[i], cache.BlockTable(kB)[i]);
  EXPECT_NE(cache.BlockTable(kA)[2], cache.BlockTable(kB)[2]);
  EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
}

TEST_F(KvCacheManagerTest, ATransferKeepsASwappedBlockUntilItEnds) {
  KvCacheManager cache(Options(16), &clock_);
  Run(cache, kA, Units(8));
  Run(cache, kB, Units(8));
  const std::vector<BlockId> own(cache.BlockTable(kB).begin(), cache.BlockTable(kB).end());
  cache.HoldForTransfer(own);
  cache.InsertCommitted(kA);
  cache.InsertCommitted(kB);
  EXPECT_EQ(cache.Stats().blocks.in_transfer, 2);
  EXPECT_EQ(cache.blocks_in_transfer(), 2);
  EXPECT_EQ(cache.Stats().blocks.free, 12);
  cache.ReleaseTransferHold(own);
  EXPECT_EQ(cache.Stats().blocks.free, 14);
}

TEST_F(KvCacheManagerTest, ReserveEvictsBeforeItFailsAndFailsWithBothNumbers) {
  KvCacheManager cache(Options(8), &clock_);
  Run(cache, kA, Units(16));
  cache.Release(kA, true);
  ASSERT_TRUE(cache.Begin(kB, kSpace, Units(8, 100), 100).ok());
  ASSERT_TRUE(cache.Reserve(kB, 24).ok());
  EXPECT_EQ(cache.Stats().evicted_blocks, 2);
  const absl::Status status = cache.Reserve(kB, 36);
  EXPECT_THAT(status.ToString(), AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("3 more blocks"),
                                       HasSubstr("2 of 8")));
  EXPECT_EQ(cache.capacity(kB), 24);
  EXPECT_EQ(cache.Stats().evictable, 2) << "a failed call evicts nothing";
}

TEST_F(KvCacheManagerTest, WhatATransferReadsIsNeitherAvailableNorEvicted) {
  KvCacheManager cache(Options(4), &clock_);
  Run(cache, kA, Units(12));
  cache.InsertCommitted(kA);
  const std::vector<BlockId> read(cache.BlockTable(kA).begin(), cache.BlockTable(kA).begin() + 1);
  cache.HoldForTransfer(read);
  cache.HoldForTransfer(read);
  cache.Release(kA, true);
  EXPECT_EQ(cache.available_blocks(), 1) << "the pin covers the block's node";
  cache.ReleaseTransferHold(read);
  EXPECT_EQ(cache.ClearCache(), 0);
  cache.ReleaseTransferHold(read);
  EXPECT_EQ(cache.available_blocks(), 4);
  EXPECT_EQ(cache.ClearCache(), 3);
}

TEST_F(KvCacheManagerTest, AMatchShorterThanTheSmallestUsefulOneCountsAsNone) {
  KvCacheOptions options = Options(16);
  options.min_prefix_tokens = 6;
  KvCacheManager cache(options, &clock_);
  Run(cache, kA, Units(12));
  cache.Release(kA, true);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(8)), 0) << "4 tokens could be had";
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(9)), 8);
  EXPECT_EQ(Run(cache, kB, Units(8)), 0);
  cache.Release(kB, true);
  EXPECT_EQ(Run(cache, kB, Units(9)), 8);
}

TEST_F(KvCacheManagerTest, BlocksToAdmitIsWhatAdmissionTakes) {
  KvCacheManager cache(Options(16), &clock_);
  Run(cache, kA, Units(16));
  cache.Release(kA, true);
  for (const int32_t length : {3, 9, 17, 30}) {
    const int32_t before = cache.available_blocks();
    const int32_t expected = cache.BlocksToAdmit(kSpace, Units(length), length);
    Run(cache, kB, Units(length));
    EXPECT_EQ(before - cache.available_blocks(), expected);
    EXPECT_EQ(cache.BlocksToAdmit(kSpace, Units(17), 17), length < 9 ? 5 : length < 17 ? 3 : 1);
    cache.Release(kB, false);
  }
}

TEST_F(KvCacheManagerTest, TruncateFreesWholeBlocksBehind) {
  KvCacheManager cache(Options(16), &clock_);
  Run(cache, kA, Units(15));
  cache.Truncate(kA, 6);
  EXPECT_EQ(cache.committed(kA), 6);
  EXPECT_EQ(cache.BlockTable(kA).size(), 2u);
  ASSERT_TRUE(cache.Reserve(kA, 8).ok());
  cache.Commit(kA, Units(2, 50));
  cache.Release(kA, true);
  std::vector<CacheUnit> rewritten = Units(6);
  rewritten.insert(rewritten.end(), {50, 51, 52});
  EXPECT_EQ(cache.PeekMatch(kSpace, rewritten), 8);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(15)), 4);
}

TEST_F(KvCacheManagerTest, AContiguousSequenceHasOneRunFromTheStart) {
  KvCacheOptions options = Options(8);
  options.paged = options.prefix_cache = false;
  KvCacheManager cache(options, &clock_);
  ASSERT_EQ(cache.Begin(kA, kSpace, Units(6), 14).value(), 0);
  const auto table = cache.BlockTable(kA);
  ASSERT_EQ(table.size(), 4u);
  for (int i = 1; i < 4; ++i) EXPECT_EQ(table[i].value(), table[0].value() + i);
  EXPECT_TRUE(cache.Reserve(kA, 14).ok());
  EXPECT_FALSE(cache.Reserve(kA, 17).ok());
  EXPECT_THAT(cache.Begin(kB, kSpace, Units(6), 20).status().ToString(),
              AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("run of 5"), HasSubstr("4 of 8")));
  EXPECT_FALSE(cache.Contains(kB));
  cache.Commit(kA, Units(6));
  cache.Release(kA, true);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(6)), 0);
  EXPECT_EQ(cache.available_blocks(), 8);
}

TEST_F(KvCacheManagerTest, StatisticsCountRequestsAndTokensApart) {
  KvCacheManager cache(Options(64, 1), &clock_);
  const std::vector<CacheUnit> first = {1, 2, 3, 4, 5, 10, 11, 12};
  std::vector<CacheUnit> second = first;
  second.insert(second.end(), {20, 21, 22, 30, 31, 32});
  for (const auto& request : {first, second, second}) {
    Run(cache, kA, request);
    cache.Release(kA, true);
  }
  const KvCacheStats stats = cache.Stats();
  EXPECT_EQ(stats.lookups, 3);
  EXPECT_EQ(stats.hits, 2);
  EXPECT_EQ(stats.lookup_tokens, 36);
  EXPECT_EQ(stats.hit_tokens, 21) << "8 and 13: the last token is always computed";
}

TEST_F(KvCacheManagerTest, StatisticsShowInternalFragmentation) {
  KvCacheManager cache(Options(64), &clock_);
  Run(cache, kA, Units(9));
  EXPECT_EQ(cache.Stats().reserved_slots, 12);
  EXPECT_EQ(cache.Stats().committed_slots, 9);
}

TEST_F(KvCacheManagerTest, TheTraceShowsBlocksTakenAtEachCrossingAndIsBounded) {
  KvCacheOptions options = Options(16);
  options.record_trace = true;
  KvCacheManager cache(options, &clock_);
  ASSERT_TRUE(cache.Begin(kA, kSpace, Units(1), 16).ok());
  for (int32_t i = 0; i < 9; ++i) {
    ASSERT_TRUE(cache.Reserve(kA, i + 1).ok());
    cache.Commit(kA, Units(1, i));
    clock_.AdvanceUs(1);
  }
  std::vector<std::pair<int32_t, int32_t>> crossings;  // tokens, free blocks after
  for (const AllocationEvent& event : cache.trace()) {
    if (event.kind != AllocationEvent::Kind::kReserve) continue;
    crossings.emplace_back(event.tokens, event.free_after);
  }
  EXPECT_EQ(crossings, (std::vector<std::pair<int32_t, int32_t>>{{0, 15}, {4, 14}, {8, 13}}));
  cache.Release(kA, false);
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_TRUE(cache.Begin(kA, kSpace, Units(1), 1).ok());
    cache.Release(kA, false);
    ASSERT_LE(cache.trace().size(), 2 * kTraceEvents);
  }
  EXPECT_GE(cache.trace().size(), kTraceEvents);
  EXPECT_EQ(cache.trace().back().kind, AllocationEvent::Kind::kRelease);
}

TEST_F(KvCacheManagerTest, WithoutPrefixCacheNothingIsKept) {
  KvCacheOptions options = Options(16);
  options.prefix_cache = false;
  KvCacheManager cache(options, &clock_);
  Run(cache, kA, Units(12));
  cache.Release(kA, true);
  EXPECT_EQ(Run(cache, kA, Units(12)), 0);
  cache.Release(kA, true);
  EXPECT_EQ(cache.Stats().blocks.free, 16);
  EXPECT_EQ(cache.Stats().hits, 0);
}

TEST(KvCacheManagerDeathTest, MisuseIsABug) {
  ManualClock clock;
  KvCacheManager cache(Options(16), &clock);
  ASSERT_TRUE(cache.Begin(kA, kSpace, Units(8), 16).ok());
  EXPECT_DEATH((void)cache.Begin(kA, kSpace, Units(8), 16), "begun already");
  EXPECT_DEATH(cache.Commit(kA, Units(1)), "commits more than it reserved");
  EXPECT_DEATH(cache.Release(kB, true), "no KV of sequence 2");
  ASSERT_TRUE(cache.Reserve(kA, 8).ok());
  cache.Commit(kA, Units(8));
  cache.InsertCommitted(kA);
  EXPECT_DEATH(cache.Truncate(kA, 7), "read-only prefix");
}

// ---- random lives against real content
// ------------------------------------------------------------

// Keeps what each slot of the pool holds (the hash of all units up to it) and expects every
// sequence to find its own prefix through its table after every operation.
class Lives {
 public:
  Lives(uint32_t seed, const KvCacheOptions& options)
      : random_(seed),
        options_(options),
        cache_(options, &clock_),
        slots_(size_t(options.num_blocks) * options.block_size) {}
  ~Lives() {
    while (!transfers_.empty()) EndTransfer();
  }

  void Step() {
    switch (random_() % 10) {
      case 0:
      case 1:
        Begin();
        break;
      case 2:
      case 3:
      case 4:
        Grow();
        break;
      case 5:
        if (const auto it = Any(); it != lives_.end()) cache_.InsertCommitted(it->first);
        break;
      case 6:
        Truncate();
        break;
      case 7:
        Release();
        break;
      case 8:
        random_() % 2 ? StartTransfer() : EndTransfer();
        break;
      case 9:
        if (random_() % 20 == 0) cache_.ClearCache();
        break;
    }
    Check();
  }

 private:
  struct Life {
    CacheNamespace space;
    std::vector<CacheUnit> units;  // committed ones
    int32_t max_tokens;
  };
  using Map = std::map<SequenceId, Life>;

  Map::iterator Any() {
    return lives_.empty() ? lives_.end() : std::next(lives_.begin(), random_() % lives_.size());
  }
  CacheUnit AnyUnit() { return random_() % 6 == 0 ? 1 : 0; }
  uint64_t& Slot(SequenceId id, int32_t slot) {
    const BlockId block = cache_.BlockTable(id)[slot / options_.block_size];
    return slots_[size_t(block.value()) * options_.block_size + slot % options_.block_size];
  }
  static uint64_t Chain(uint64_t before, CacheUnit unit) {
    return (before * 31 + unit + 1) * 0x9E3779B97F4A7C15ull;
  }

  void Begin() {
    if (lives_.size() == 6) return Release();
    std::vector<CacheUnit> units(1 + random_() % 30);
    for (CacheUnit& unit : units) unit = AnyUnit();
    const CacheNamespace space(1 + random_() % 2);
    const int32_t max_tokens = static_cast<int32_t>(units.size()) + random_() % 10;
    const SequenceId id(++next_);
    const int32_t peeked = cache_.PeekMatch(space, units);
    const auto matched = cache_.Begin(id, space, units, max_tokens);
    if (!matched.ok()) {
      ASSERT_FALSE(options_.paged);
      return;
    }
    ASSERT_EQ(*matched, peeked);
    ASSERT_LT(*matched, static_cast<int32_t>(units.size()));
    ASSERT_TRUE(*matched == 0 || *matched >= options_.min_prefix_tokens);
    units.resize(*matched);
    lives_[id] = {.space = space, .units = units, .max_tokens = max_tokens};
  }

  void Grow() {
    const auto it = Any();
    if (it == lives_.end()) return;
    auto& [id, life] = *it;
    const int32_t committed = static_cast<int32_t>(life.units.size());
    const int32_t count = std::min<int32_t>(1 + random_() % 9, life.max_tokens - committed);
    const int32_t needed =
        cache_.BlocksFor(committed + count) - static_cast<int32_t>(cache_.BlockTable(id).size());
    const bool possible = needed <= cache_.available_blocks() || needed <= 0;
    ASSERT_EQ(cache_.Reserve(id, committed + count).ok(), possible);
    if (!possible) return;
    uint64_t chain = committed == 0 ? life.space.value() : Slot(id, committed - 1);
    std::vector<CacheUnit> units(count);
    for (int32_t i = 0; i < count; ++i) {
      units[i] = AnyUnit();
      chain = Chain(chain, units[i]);
      Slot(id, committed + i) = chain;
    }
    cache_.Commit(id, units);
    life.units.insert(life.units.end(), units.begin(), units.end());
  }

  void Truncate() {
    const auto it = Any();
    if (it == lives_.end()) return;
    const int32_t shared = cache_.shared_tokens(it->first);
    const int32_t tokens = shared + random_() % (cache_.capacity(it->first) - shared + 1);
    cache_.Truncate(it->first, tokens);
    if (tokens < static_cast<int32_t>(it->second.units.size())) it->second.units.resize(tokens);
  }

  void Release() {
    const auto it = Any();
    if (it == lives_.end()) return;
    cache_.Release(it->first, random_() % 4 != 0);
    lives_.erase(it);
  }

  void StartTransfer() {
    const auto it = Any();
    if (it == lives_.end()) return;
    std::vector<BlockId> blocks;
    for (const BlockId block : cache_.BlockTable(it->first)) {
      if (random_() % 2) blocks.push_back(block);
    }
    cache_.HoldForTransfer(blocks);
    transfers_.push_back(blocks);
  }

  void EndTransfer() {
    if (transfers_.empty()) return;
    const size_t which = random_() % transfers_.size();
    cache_.ReleaseTransferHold(transfers_[which]);
    transfers_.erase(transfers_.begin() + which);
  }

  void Check() {
    ASSERT_TRUE(cache_.CheckConservation().ok()) << cache_.CheckConservation();
    const KvCacheStats stats = cache_.Stats();
    ASSERT_EQ(
        stats.blocks.free + stats.blocks.cached + stats.blocks.owned + stats.blocks.in_transfer,
        options_.num_blocks);
    ASSERT_LE(stats.evictable, stats.blocks.cached);
    for (const auto& [id, life] : lives_) {
      ASSERT_EQ(cache_.committed(id), static_cast<int32_t>(life.units.size()));
      uint64_t chain = life.space.value();
      for (int32_t i = 0; i < static_cast<int32_t>(life.units.size()); ++i) {
        chain = Chain(chain, life.units[i]);
        ASSERT_EQ(Slot(id, i), chain) << "sequence " << id << " slot " << i;
      }
    }
  }

  std::mt19937 random_;
  const KvCacheOptions options_;
  ManualClock clock_;
  KvCacheManager cache_;
  std::vector<uint64_t> slots_;
  Map lives_;
  std::vector<std::vector<BlockId>> transfers_;
  uint64_t next_ = 0;
};

TEST(KvCacheManagerRandom, EverySequenceFindsItsOwnKvAndEveryBlockIsAccountedFor) {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    KvCacheOptions options = Options(8 + 7 * (seed % 5), 1 << (seed % 4));
    options.paged = seed % 7 != 0;
    options.prefix_cache = options.paged && seed % 5 != 0;
    options.min_prefix_tokens = seed % 3 == 0 ? 5 : 0;
    options.record_trace = seed % 2 == 0;
    Lives lives(seed, options);
    for (int step = 0; step < 8'000; ++step) {
      lives.Step();
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace baton
