// The KV events of a cache must match what sequences can find in it, after any operation.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "cache/kv_cache_manager.h"
#include "tests/cache/literal_event_model.h"
#include "tests/common/random_operations.h"

namespace baton {
namespace {

constexpr int kSpaces = 2;

// A cache under random calls, with every sequence that it has seen.
class EventDriver {
 public:
  EventDriver(int32_t block_size, uint64_t seed)
      : random_(seed),
        blocks_(std::max(16, 512 / block_size)),
        cache_({.num_blocks = blocks_,
                .max_blocks = 2 * blocks_,
                .block_size = block_size,
                .high_water = seed % 2 == 0 ? 1.0 : 0.9,
                .low_water = seed % 2 == 0 ? 1.0 : 0.7,
                .kv_events = true},
               &clock_) {}
  ~EventDriver() {
    while (!transfers_.empty()) EndTransfer();
  }

  void Step() {
    const int what = Pick(100);
    if (what < 25 || live_.empty()) {
      Begin();
    } else if (what < 60) {
      Grow(live_[Pick(live_.size())]);
    } else if (what < 80) {
      End();
    } else if (what < 86) {
      Fork();
    } else if (what < 90) {
      BeginTransfer();
    } else if (what < 94) {
      EndTransfer();
    } else if (what < 96) {
      ASSERT_TRUE(cache_.Resize(blocks_ / 2 + Pick(blocks_)).ok());
    } else if (what < 97) {
      Pick(2) == 0 ? cache_.ClearCache() : cache_.ClearCache(CacheNamespace(Pick(3)));
    } else {
      Snapshot();
    }
  }

  // State according to the events.
  const std::set<Hash128>& Told() {
    for (const std::string& batch : cache_.TakeKvEvents()) ApplyEncoded(batch, told_);
    return told_;
  }
  // Prefixes that earlier sequences would find now.
  std::set<Hash128> Findable() const {
    std::set<Hash128> held;
    for (const auto& [space, units] : seen_) {
      std::vector<CacheUnit> longer = units;
      longer.push_back(0);  // a match leaves at least one unit
      const int32_t found = cache_.PeekMatch(space, longer);
      const auto hashes = ChainedHashes(space, std::span(units).first(found));
      held.insert(hashes.begin(), hashes.end());
    }
    return held;
  }
  const KvCacheManager& cache() const { return cache_; }

 private:
  struct Live {
    SequenceId id;
    CacheNamespace space;
    std::vector<CacheUnit> units;  // committed
  };

  int Pick(size_t below) { return static_cast<int>(random_() % below); }
  CacheUnit NewUnit() { return Pick(2); }

  void Begin() {
    Live live{.id = SequenceId(++next_id_), .space = CacheNamespace(Pick(kSpaces)), .units = {}};
    if (!seen_.empty() && Pick(3) > 0) {  // continues another sequence or diverges from it
      const auto& [space, units] = *std::next(seen_.begin(), Pick(seen_.size()));
      live.space = space;
      live.units.assign(units.begin(), units.begin() + Pick(units.size() + 1));
    }
    const size_t length = live.units.size() + 1 + Pick(100);
    while (live.units.size() < length) live.units.push_back(NewUnit());
    const auto matched = cache_.Begin(live.id, live.space, live.units, 1 << 20);
    ASSERT_TRUE(matched.ok());
    live.units.resize(*matched);
    live_.push_back(live);
    Grow(live_.back());
  }

  void Grow(Live& live) {
    const int32_t more = 1 + Pick(90);
    if (!cache_.Reserve(live.id, static_cast<int32_t>(live.units.size()) + more).ok()) return;
    std::vector<CacheUnit> units;
    for (int32_t i = 0; i < more; ++i) units.push_back(NewUnit());
    cache_.Commit(live.id, units);
    live.units.insert(live.units.end(), units.begin(), units.end());
    if (Pick(2) == 0) cache_.InsertCommitted(live.id);
    seen_.emplace(live.space, live.units);
  }

  void Fork() {
    const Live& parent = live_[Pick(live_.size())];
    Live child{.id = SequenceId(++next_id_), .space = parent.space, .units = parent.units};
    ASSERT_TRUE(cache_.Fork(parent.id, child.id).ok());
    live_.push_back(child);
  }

  void End() {
    const size_t index = Pick(live_.size());
    const SequenceId id = live_[index].id;
    if (Pick(4) == 0) {
      cache_.Preempt(id);
    } else {
      cache_.Release(id, /*keep=*/Pick(4) > 0);
    }
    live_.erase(live_.begin() + index);
  }

  void BeginTransfer() {
    const std::span<const BlockId> table = cache_.BlockTable(live_[Pick(live_.size())].id);
    transfers_.emplace_back(table.begin(), table.end());
    cache_.HoldForTransfer(transfers_.back());
  }
  void EndTransfer() {
    if (transfers_.empty()) return;
    cache_.ReleaseTransferHold(transfers_.back());
    transfers_.pop_back();
  }

  void Snapshot() {
    Told();
    told_.clear();
    for (const std::string& part : cache_.SnapshotKvEvents()) ApplyEncoded(part, told_);
  }

  std::mt19937_64 random_;
  const int32_t blocks_;
  const SystemClock clock_;
  KvCacheManager cache_;
  uint64_t next_id_ = 0;
  std::vector<Live> live_;
  std::set<std::pair<CacheNamespace, std::vector<CacheUnit>>> seen_;
  std::vector<std::vector<BlockId>> transfers_;
  std::set<Hash128> told_;
};

class KvCacheManagerEvents : public testing::TestWithParam<int32_t> {};

TEST_P(KvCacheManagerEvents, DescribeExactlyThePrefixesThatSequencesFind) {
  const int32_t block_size = GetParam();
  constexpr int kSeeds = RandomSeeds(60), kSteps = 500;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "block size " << block_size << ", seed " << seed);
    EventDriver driver(block_size, seed);
    for (int step = 0; step < kSteps; ++step) {
      driver.Step();
      ASSERT_EQ(driver.Told(), driver.Findable()) << "step " << step;
      ASSERT_FALSE(HasFailure());
    }
    EXPECT_TRUE(driver.cache().CheckConservation().ok()) << driver.cache().CheckConservation();
  }
  ReportRandomOperations(kSeeds * kSteps);
}

INSTANTIATE_TEST_SUITE_P(BlockSizes, KvCacheManagerEvents,
                         testing::Values(1, 2, 4, 8, 16, 32, 64, 128));

TEST(KvEventsOfACache, KindsWithoutSharingPublishNoEvents) {
  const SystemClock clock;
  for (const CacheKind kind : {CacheKind::kNaive, CacheKind::kChunkOnly, CacheKind::kRadix}) {
    KvCacheManager cache({.num_blocks = 16, .kind = kind, .kv_events = true}, &clock);
    EXPECT_EQ(cache.publishes(), kind == CacheKind::kRadix);
    const std::vector<CacheUnit> units(64);
    ASSERT_TRUE(cache.Begin(SequenceId(1), CacheNamespace(1), units, 64).ok());
    ASSERT_TRUE(cache.Reserve(SequenceId(1), 64).ok());
    cache.Commit(SequenceId(1), units);
    cache.Preempt(SequenceId(1));
    EXPECT_EQ(cache.TakeKvEvents().empty(), kind != CacheKind::kRadix);
  }
}

TEST(KvEventsOfACache, AnEmptyCacheHasASnapshotOfOneEmptyPart) {
  const SystemClock clock;
  const KvCacheManager cache({.num_blocks = 16, .kv_events = true}, &clock);
  ASSERT_EQ(cache.SnapshotKvEvents().size(), 1u);
  std::set<Hash128> held;
  ApplyEncoded(cache.SnapshotKvEvents()[0], held);
  EXPECT_TRUE(held.empty());
}

}  // namespace
}  // namespace baton
