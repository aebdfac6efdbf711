#include "cache/sleeping_chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cache/index/kv_event.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr CacheNamespace kSpace{1}, kOtherSpace{2};

std::vector<TokenId> Text(TokenId first) { return {first, first + 1, first + 2}; }

ChunkKey KeyOf(TokenId first, CacheNamespace space = kSpace) {
  return MakeChunkKey(space, ChunkKind::kChunk, std::nullopt, Text(first));
}

std::shared_ptr<const PackedKv> KvOf(size_t bytes) {
  auto kv = std::make_shared<PackedKv>();
  kv->blocks.resize(1);
  kv->blocks[0].bytes.resize(bytes);
  return kv;
}

class SleepingChunksTest : public testing::Test {
 protected:
  // Room for `chunks` chunks of 1,000 bytes.
  void Open(int64_t chunks) {
    sleepers_ = std::make_unique<SleepingChunks>(chunks * kChunkBytes, &manager_);
  }
  void TearDown() override { EXPECT_TRUE(sleepers_->CheckInvariants().ok()); }
  bool Sleep(TokenId first, CacheNamespace space = kSpace, int64_t last_use_us = 10) {
    if (!sleepers_->Reserve(kChunkBytes, last_use_us)) return false;
    sleepers_->Add({.key = KeyOf(first, space),
                    .tokens = Text(first),
                    .position = 7,
                    .uses = 3,
                    .stored_us = 5,
                    .last_use_us = last_use_us,
                    .kv = KvOf(1000)},
                   kChunkBytes);
    EXPECT_TRUE(sleepers_->CheckInvariants().ok()) << sleepers_->CheckInvariants();
    return true;
  }
  bool Has(TokenId first, CacheNamespace space = kSpace) const {
    return sleepers_->Find(KeyOf(first, space), Text(first)) != nullptr;
  }
  // The published keys of the host tier, and of the device tier.
  std::vector<std::set<Hash128>> Published() {
    std::vector<std::set<Hash128>> tiers(2);
    for (const std::string& batch : manager_.TakeKvEvents()) {
      const auto events = DecodeKvEvents(batch);
      for (const KvEvent& event : *events) {
        for (const Hash128& hash : event.hashes) {
          std::set<Hash128>& tier = published_[static_cast<size_t>(event.tier)];
          event.kind == KvEvent::Kind::kStored ? (void)tier.insert(hash) : (void)tier.erase(hash);
        }
        if (event.kind == KvEvent::Kind::kCleared) published_ = {{}, {}};
      }
    }
    for (const std::string& part : manager_.SnapshotKvEvents()) {
      const auto events = DecodeKvEvents(part);
      for (const KvEvent& event : *events) {
        tiers[static_cast<size_t>(event.tier)].insert(event.hashes.begin(), event.hashes.end());
      }
    }
    EXPECT_EQ(tiers, published_) << "a snapshot";
    return published_;
  }

  static constexpr int64_t kChunkBytes = 1000 + sizeof(PackedBlock) + sizeof(PackedKv);
  static KvCacheOptions Pool() {
    KvCacheOptions pool;
    pool.num_blocks = 20;
    pool.kv_events = true;
    return pool;
  }
  ManualClock clock_;
  KvCacheManager manager_{Pool(), &clock_};
  std::unique_ptr<SleepingChunks> sleepers_;
  std::vector<std::set<Hash128>> published_{2};
};

TEST_F(SleepingChunksTest, ASleeperIsFoundByItsKeyAndTokens) {
  Open(2);
  EXPECT_TRUE(Sleep(1));
  const SleepingChunks::Sleeper* const found = sleepers_->Find(KeyOf(1), Text(1));
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->position, 7);
  EXPECT_EQ(sleepers_->Find(KeyOf(1), Text(2)), nullptr);
  EXPECT_EQ(sleepers_->Find(KeyOf(1, kOtherSpace), Text(1)), nullptr) << "another tenant";
  const std::vector<ChunkCache::EntryInfo> entries = sleepers_->Entries(/*now_us=*/30);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].tier, CacheTier::kHost);
  EXPECT_EQ(entries[0].host_bytes, kChunkBytes);
  EXPECT_EQ(entries[0].age_us, 25);
  EXPECT_EQ(entries[0].idle_us, 20);
  EXPECT_EQ(entries[0].uses, 3);
}

TEST_F(SleepingChunksTest, TheLeastRecentlyUsedGoesAtTheLimit) {
  Open(2);
  Sleep(1);
  Sleep(2);
  sleepers_->Unpin(sleepers_->Pin(KeyOf(1), 50), /*woken=*/false);
  EXPECT_TRUE(Sleep(3));
  EXPECT_TRUE(Has(1) && !Has(2) && Has(3));
  EXPECT_EQ(sleepers_->Stats().dropped, 1);
  EXPECT_EQ(sleepers_->Stats().bytes, 2 * kChunkBytes);
  EXPECT_FALSE(sleepers_->Reserve(2 * kChunkBytes + 1, 100)) << "more than the limit";
  EXPECT_EQ(sleepers_->Stats().entries, 2) << "and nothing was dropped for it";
}

TEST_F(SleepingChunksTest, AChunkDoesNotReplaceOneThatWasUsedLater) {
  Open(1);
  Sleep(1, kSpace, 20);
  EXPECT_FALSE(Sleep(2, kSpace, 19));
  EXPECT_TRUE(Has(1));
  EXPECT_TRUE(Sleep(3, kSpace, 20));
  EXPECT_FALSE(Has(1));
}

// A chunk may fall asleep long after its last use.
TEST_F(SleepingChunksTest, UsesBeforeTheSleepCount) {
  Open(2);
  Sleep(1, kSpace, 20);
  Sleep(2, kSpace, 15);
  EXPECT_TRUE(Sleep(3, kSpace, 30));
  EXPECT_TRUE(Has(1) && !Has(2) && Has(3));
  EXPECT_EQ(sleepers_->Entries(/*now_us=*/40)[0].idle_us, 20);
}

TEST_F(SleepingChunksTest, WithoutALimitNothingSleeps) {
  Open(0);
  EXPECT_FALSE(Sleep(1));
}

TEST_F(SleepingChunksTest, ACopyThatTookLessThanItsReservationLeavesTheRest) {
  Open(1);
  ASSERT_TRUE(sleepers_->Reserve(kChunkBytes, 0));
  EXPECT_EQ(sleepers_->Stats().bytes, kChunkBytes);
  sleepers_->Add({.key = KeyOf(1), .tokens = Text(1), .kv = KvOf(300)}, kChunkBytes);
  EXPECT_EQ(sleepers_->Stats().bytes, kChunkBytes - 700);
}

TEST_F(SleepingChunksTest, APinnedSleeperIsNotEvictedAndItsMemoryCountsUntilUnpin) {
  Open(1);
  Sleep(1);
  std::shared_ptr<const PackedKv> kv = sleepers_->Pin(KeyOf(1), 50);
  EXPECT_FALSE(Sleep(2));
  sleepers_->Clear();
  EXPECT_FALSE(Has(1));
  EXPECT_FALSE(Sleep(2)) << "the memory is not free yet";
  EXPECT_EQ(sleepers_->Stats().bytes, kChunkBytes);
  sleepers_->Unpin(kv, /*woken=*/true);
  EXPECT_EQ(sleepers_->Stats().bytes, 0);
  EXPECT_EQ(sleepers_->Stats().wakes, 1);
  EXPECT_TRUE(Sleep(2));
}

TEST_F(SleepingChunksTest, TwoWakesOfASleeperPinItTwice) {
  Open(1);
  Sleep(1);
  std::shared_ptr<const PackedKv> kv = sleepers_->Pin(KeyOf(1), 50);
  sleepers_->Pin(KeyOf(1), 51);
  sleepers_->Unpin(kv, true);
  EXPECT_FALSE(Sleep(2, kSpace, 60));
  sleepers_->Unpin(kv, true);
  EXPECT_TRUE(Sleep(2, kSpace, 60));
}

TEST_F(SleepingChunksTest, ADamagedSleeperIsDroppedAndCounted) {
  Open(2);
  Sleep(1);
  const auto kv = sleepers_->Pin(KeyOf(1), 50);
  sleepers_->Damaged(KeyOf(1), kv);
  sleepers_->Unpin(kv, false);
  EXPECT_FALSE(Has(1));
  EXPECT_EQ(sleepers_->Stats().damaged, 1);
  // A newer copy of the chunk is not damaged with an older one.
  Sleep(1);
  sleepers_->Damaged(KeyOf(1), kv);
  EXPECT_TRUE(Has(1));
}

TEST_F(SleepingChunksTest, ClearForgetsOneNamespace) {
  Open(3);
  Sleep(1);
  Sleep(2, kOtherSpace);
  sleepers_->Clear(kSpace);
  EXPECT_FALSE(Has(1));
  EXPECT_TRUE(Has(2, kOtherSpace));
  sleepers_->Clear();
  EXPECT_THAT(sleepers_->Entries(0), IsEmpty());
  EXPECT_EQ(sleepers_->Stats().dropped, 0);
}

TEST_F(SleepingChunksTest, KvEventsReportSleepersInTheHostTier) {
  Open(2);
  const Hash128 one = KeyOf(1).hash;
  manager_.ChunkStored(one);
  Published();
  manager_.ChunkRemoved(one);
  Sleep(1);
  EXPECT_EQ(Published(), (std::vector<std::set<Hash128>>{{}, {one}}));
  // The chunk cache has it again.
  manager_.ChunkStored(one);
  EXPECT_EQ(Published(), (std::vector<std::set<Hash128>>{{one}, {one}}));
  manager_.ClearCache();  // of prefixes: the chunks stay in both tiers
  EXPECT_EQ(Published(), (std::vector<std::set<Hash128>>{{one}, {one}}));
  sleepers_->Forget(KeyOf(1));
  EXPECT_EQ(Published(), (std::vector<std::set<Hash128>>{{one}, {}}));
  sleepers_->Forget(KeyOf(1));
}

// Random events against a list in order of use.
TEST_F(SleepingChunksTest, RandomEventsAgreeWithANaiveList) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  constexpr int32_t kRoom = 4;
  Open(kRoom);
  struct Known {
    int64_t last_use_us;
    TokenId chunk;
  };
  std::list<Known> naive;  // the least recently used first
  std::vector<std::pair<TokenId, std::shared_ptr<const PackedKv>>> pins;  // of chunks in `naive`
  const auto pinned = [&](TokenId chunk) {
    return std::any_of(pins.begin(), pins.end(), [&](const auto& p) { return p.first == chunk; });
  };
  const auto pinned_at = [&](const Known& known) { return pinned(known.chunk); };
  const auto forget = [&](TokenId chunk) {
    naive.remove_if([&](const Known& known) { return known.chunk == chunk; });
  };
  const auto add = [&](int64_t last_use_us, TokenId chunk) {
    forget(chunk);
    naive.insert(std::find_if(naive.begin(), naive.end(),
                              [&](const Known& known) { return known.last_use_us > last_use_us; }),
                 {last_use_us, chunk});
  };
  for (int i = 0; i < 3000; ++i) {
    const auto chunk = static_cast<TokenId>(100 * (random() % 8));
    switch (random() % 4) {
      case 0: {
        if (pinned(chunk)) break;
        const int64_t last_use_us = i - static_cast<int64_t>(random() % 20);
        // Room is made before the old copy goes.
        const auto first = std::find_if_not(naive.begin(), naive.end(), pinned_at);
        const bool fits = static_cast<int32_t>(naive.size()) < kRoom ||
                          (first != naive.end() && first->last_use_us <= last_use_us);
        ASSERT_EQ(Sleep(chunk, kSpace, last_use_us), fits);
        if (!fits) break;
        if (static_cast<int32_t>(naive.size()) == kRoom) {
          naive.erase(std::find_if_not(naive.begin(), naive.end(), pinned_at));
        }
        add(last_use_us, chunk);
        break;
      }
      case 1:
        if (!Has(chunk)) break;
        pins.emplace_back(chunk, sleepers_->Pin(KeyOf(chunk), i));
        add(i, chunk);
        break;
      case 2:
        if (pins.empty()) break;
        std::swap(pins[random() % pins.size()], pins.back());
        sleepers_->Unpin(pins.back().second, true);
        pins.pop_back();
        break;
      default:
        if (pinned(chunk)) break;
        sleepers_->Forget(KeyOf(chunk));
        forget(chunk);
    }
    ASSERT_TRUE(sleepers_->CheckInvariants().ok()) << sleepers_->CheckInvariants();
    std::vector<ChunkKey> expected;
    for (const Known& known : naive) expected.push_back(KeyOf(known.chunk));
    std::vector<ChunkKey> found;
    for (const ChunkCache::EntryInfo& entry : sleepers_->Entries(0)) found.push_back(entry.key);
    ASSERT_TRUE(found == expected) << "after event " << i;
  }
  for (const auto& [chunk, kv] : pins) sleepers_->Unpin(kv, true);
}

}  // namespace
}  // namespace baton
