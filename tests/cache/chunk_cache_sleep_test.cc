// When chunks are cold, and which leaving chunks the chunk cache offers for demotion.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "cache/chunk_cache.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kHourUs = 3'600'000'000;

class ChunkCacheSleepTest : public testing::Test {
 protected:
  void Open(ChunkCacheOptions options = {.share = 0.5}) {
    options.clock = &clock_;
    KvCacheOptions pool;
    pool.num_blocks = 20;
    pool.max_blocks = 40;
    pool.block_size = 4;
    manager_ = std::make_unique<KvCacheManager>(pool, &clock_);
    chunks_ = std::make_unique<ChunkCache>(options, manager_.get());
    chunks_->set_demotion([this](const ChunkCache::Leaving& leaving) {
      if (!takes_) return false;
      EXPECT_EQ(leaving.blocks.size(), 2u);
      EXPECT_EQ(leaving.position, 7);
      last_uses_ = leaving.uses;
      left_.push_back(leaving.tokens.front());
      // A copy needs the blocks for a while.
      manager_->HoldForTransfer(leaving.blocks);
      held_.insert(held_.end(), leaving.blocks.begin(), leaving.blocks.end());
      return true;
    });
  }
  void TearDown() override {
    if (manager_ == nullptr) return;
    EXPECT_TRUE(chunks_->CheckInvariants().ok());
    manager_->ReleaseTransferHold(held_);
    EXPECT_TRUE(manager_->CheckConservation().ok()) << manager_->CheckConservation();
    chunks_.reset();
  }
  static std::vector<TokenId> Text(TokenId first) { return std::vector<TokenId>(8, first); }
  static ChunkKey KeyOf(TokenId first) {
    return MakeChunkKey(CacheNamespace{1}, ChunkKind::kChunk, std::nullopt, Text(first));
  }
  ChunkCache::Reference Store(TokenId first, bool sleeps = true) {
    const SequenceId id(next_++);
    EXPECT_TRUE(manager_->BeginPart(id, 8).ok());
    EXPECT_TRUE(manager_->Reserve(id, 8).ok());
    manager_->Commit(id, UnitsFromTokens(Text(first)));
    const std::vector<TokenId> tokens = Text(first);
    ChunkCache::Reference reference = chunks_->Store({.key = KeyOf(first),
                                                      .tokens = tokens,
                                                      .position = 7,
                                                      .blocks = manager_->BlockTable(id),
                                                      .sleeps = sleeps});
    manager_->Release(id, /*keep=*/false);
    return reference;
  }
  ChunkCache::Reference Find(TokenId first) { return chunks_->Find(KeyOf(first), Text(first)); }
  bool Has(TokenId first) { return chunks_->Peek(KeyOf(first), Text(first)).has_value(); }
  // Returns the chunks that left in a round.
  std::vector<TokenId> Sleep() {
    left_.clear();
    chunks_->SleepCold();
    return left_;
  }

  ManualClock clock_;
  std::unique_ptr<KvCacheManager> manager_;
  std::unique_ptr<ChunkCache> chunks_;
  bool takes_ = true;
  int64_t last_uses_ = -1;
  std::vector<TokenId> left_;
  std::vector<BlockId> held_;
  uint64_t next_ = 1;
};

TEST_F(ChunkCacheSleepTest, AnOldChunkWithFewUsesLeaves) {
  Open();
  Store(1);
  clock_.AdvanceUs(kHourUs - 1);
  EXPECT_THAT(Sleep(), IsEmpty());
  clock_.AdvanceUs(ChunkCache::kSleepRoundUs);
  EXPECT_THAT(Sleep(), ElementsAre(1));
  EXPECT_FALSE(Has(1));
  EXPECT_EQ(chunks_->Stats().used_blocks, 0);
  EXPECT_EQ(chunks_->Stats().evictions, 0) << "it left because it was cold, not for room";
}

TEST_F(ChunkCacheSleepTest, FiveUsesInTheLastHourKeepAChunkAwake) {
  Open();
  Store(1);
  Store(2);
  clock_.AdvanceUs(kHourUs);
  for (int i = 0; i < 5; ++i) Find(1);
  for (int i = 0; i < 4; ++i) Find(2);
  EXPECT_THAT(Sleep(), ElementsAre(2));
  EXPECT_EQ(last_uses_, 4);
  clock_.AdvanceUs(kHourUs - 1);
  EXPECT_THAT(Sleep(), IsEmpty());
  Find(1);
  clock_.AdvanceUs(ChunkCache::kSleepRoundUs);
  EXPECT_THAT(Sleep(), ElementsAre(1)) << "one of six uses was in the last hour";
}

TEST_F(ChunkCacheSleepTest, OneOfManyUsesLeavesTheHourAtATime) {
  Open({.share = 0.5, .sleep_after_us = 10 * ChunkCache::kSleepRoundUs, .sleep_uses = 2});
  Store(1);
  for (int i = 0; i < 30; ++i) {
    clock_.AdvanceUs(5 * ChunkCache::kSleepRoundUs);
    Find(1);
    EXPECT_THAT(Sleep(), IsEmpty()) << i;
  }
  clock_.AdvanceUs(4 * ChunkCache::kSleepRoundUs);
  EXPECT_THAT(Sleep(), IsEmpty());
  clock_.AdvanceUs(ChunkCache::kSleepRoundUs);
  EXPECT_THAT(Sleep(), ElementsAre(1));
}

TEST_F(ChunkCacheSleepTest, NoChunkIsColdWithZeroUses) {
  Open({.share = 0.5, .sleep_after_us = 0, .sleep_uses = 0});
  Store(1);
  clock_.AdvanceUs(kHourUs);
  EXPECT_THAT(Sleep(), IsEmpty());
}

TEST_F(ChunkCacheSleepTest, AReferencedChunkStaysAwake) {
  Open();
  ChunkCache::Reference used = Store(1);
  clock_.AdvanceUs(kHourUs);
  EXPECT_THAT(Sleep(), IsEmpty());
  used.Drop();
  clock_.AdvanceUs(ChunkCache::kSleepRoundUs);
  EXPECT_THAT(Sleep(), ElementsAre(1));
}

TEST_F(ChunkCacheSleepTest, AChunkThatIsNotTakenStays) {
  Open();
  Store(1);
  Store(2);
  clock_.AdvanceUs(kHourUs);
  takes_ = false;
  EXPECT_THAT(Sleep(), IsEmpty());
  EXPECT_TRUE(Has(1));
  takes_ = true;
  EXPECT_THAT(Sleep(), IsEmpty()) << "there was a round just now";
  clock_.AdvanceUs(ChunkCache::kSleepRoundUs);
  EXPECT_THAT(Sleep(), ElementsAre(1, 2));
}

TEST_F(ChunkCacheSleepTest, TheChunkThatLeavesAtACapIsOffered) {
  Open({.share = 0.2});  // 4 blocks: two chunks
  for (const TokenId chunk : {1, 2, 3}) Store(chunk);
  EXPECT_THAT(left_, ElementsAre(1));
  EXPECT_EQ(chunks_->Stats().evictions, 1);
  takes_ = false;
  Store(4);
  EXPECT_FALSE(Has(2)) << "it is lost: the cap holds";
  EXPECT_THAT(left_, ElementsAre(1));
}

// The scheduler needs the blocks at once.
TEST_F(ChunkCacheSleepTest, AChunkThatLeavesForASequenceIsNotOffered) {
  Open();
  Store(1);
  EXPECT_EQ(chunks_->EvictOne(), 2);
  EXPECT_THAT(left_, IsEmpty());
  EXPECT_EQ(manager_->available_blocks(), 20);
}

TEST_F(ChunkCacheSleepTest, AClearedChunkIsNotOffered) {
  Open();
  Store(1);
  const ChunkCache::Reference used = Store(2);
  chunks_->Clear();
  EXPECT_THAT(left_, IsEmpty());
}

TEST_F(ChunkCacheSleepTest, ChunksThatASmallerPoolHasNoRoomForAreOffered) {
  Open();
  for (const TokenId chunk : {1, 2, 3, 4}) Store(chunk);
  ChunkCache::Reference used = Find(1);
  ASSERT_TRUE(manager_->Resize(6).ok());  // a budget of 3 blocks
  chunks_->PoolResized();
  EXPECT_THAT(left_, ElementsAre(4, 2, 3)) << "the one behind the pool first";
  EXPECT_TRUE(Has(1));
}

TEST_F(ChunkCacheSleepTest, ASystemPartIsNeverOffered) {
  Open({.share = 0.2});
  Store(1, /*sleeps=*/false);
  clock_.AdvanceUs(kHourUs);
  EXPECT_THAT(Sleep(), IsEmpty());
  Store(2);
  Store(3);
  EXPECT_FALSE(Has(1));
  EXPECT_THAT(left_, IsEmpty());
}

}  // namespace
}  // namespace baton
