#include "engine/chunk_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/engine/fake_chunk_mover.h"

namespace baton {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kBytesPerBlock = 1000;
constexpr int32_t kTokens = 7;  // two blocks of 4

std::vector<TokenId> Text(TokenId first) { return std::vector<TokenId>(kTokens, first); }

ChunkKey KeyOf(TokenId first, CacheNamespace space = CacheNamespace{1}) {
  return MakeChunkKey(space, ChunkKind::kChunk, std::nullopt, Text(first));
}

class ChunkTierTest : public testing::Test {
 protected:
  // Host memory for `chunks` chunks.
  void Open(int32_t chunks = 4, int32_t max_falling_blocks = 100) {
    tier_.emplace(ChunkTierOptions{.host_bytes = chunks * MostHostBytes(2, kBytesPerBlock),
                                   .bytes_per_block = kBytesPerBlock,
                                   .max_falling_blocks = max_falling_blocks},
                  &cache_, &mover_, &clock_);
  }
  void TearDown() override {
    if (!tier_.has_value()) return;
    mover_.EndAll();
    Poll();
    Check();
    EXPECT_TRUE(tier_->idle());
    EXPECT_EQ(cache_.Stats().blocks.in_transfer, 0);
    tier_.reset();
  }
  void Check() {
    std::vector<BlockId> held;
    tier_->AppendHeld(held);
    EXPECT_TRUE(cache_.CheckTransferHolds(held).ok()) << cache_.CheckTransferHolds(held);
    EXPECT_TRUE(tier_->CheckInvariants().ok()) << tier_->CheckInvariants();
  }
  // A sequence with two blocks.
  SequenceId Begin() {
    const SequenceId id(next_++);
    EXPECT_TRUE(cache_.BeginPart(id, kTokens).ok());
    EXPECT_TRUE(cache_.Reserve(id, kTokens).ok());
    return id;
  }
  std::vector<BlockId> BlocksOf(SequenceId id) {
    const std::span<const BlockId> table = cache_.BlockTable(id);
    return {table.begin(), table.end()};
  }
  // A chunk leaves the chunk cache, which releases its blocks afterwards.
  bool FallAsleep(TokenId first, CacheNamespace space = CacheNamespace{1}) {
    const SequenceId id = Begin();
    const std::vector<TokenId> tokens = Text(first);
    const bool taken = tier_->FallAsleep({.key = KeyOf(first, space),
                                          .tokens = tokens,
                                          .position = 5,
                                          .blocks = cache_.BlockTable(id),
                                          .last_use_us = clock_.NowUs()});
    cache_.Release(id, /*keep=*/false);
    Check();
    return taken;
  }
  void Sleep(TokenId first, CacheNamespace space = CacheNamespace{1}) {
    ASSERT_TRUE(FallAsleep(first, space));
    mover_.EndOne();
    EXPECT_THAT(Poll(), IsEmpty());
    ASSERT_TRUE(tier_->Has(KeyOf(first, space), Text(first)));
  }
  std::vector<ChunkTier::Woken> Poll() { return tier_->Poll(); }
  // Starts to wake a chunk into a new sequence.
  SequenceId Wake(TokenId first) {
    const SequenceId id = Begin();
    std::shared_ptr<const PackedKv> kv = tier_->ToWake(KeyOf(first), Text(first));
    EXPECT_NE(kv, nullptr);
    if (kv == nullptr) return id;
    tier_->Wake(KeyOf(first), std::move(kv), kTokens, id, cache_.BlockTable(id));
    Check();
    return id;
  }

  ManualClock clock_;
  KvCacheManager cache_{{.num_blocks = 40, .block_size = 4}, &clock_};
  FakeChunkMover mover_{kBytesPerBlock};
  std::optional<ChunkTier> tier_;
  uint64_t next_ = 1;
};

TEST_F(ChunkTierTest, AChunkKeepsItsBlocksUntilItIsCopied) {
  Open();
  ASSERT_TRUE(FallAsleep(1));
  EXPECT_EQ(cache_.Stats().blocks.in_transfer, 2);
  ASSERT_THAT(mover_.jobs, SizeIs(1));
  EXPECT_EQ(mover_.jobs.begin()->second.tokens, kTokens);
  EXPECT_TRUE(tier_->Has(KeyOf(1), Text(1)));
  EXPECT_EQ(tier_->ToWake(KeyOf(1), Text(1)), nullptr) << "it does not sleep yet";
  mover_.EndOne();
  Poll();
  EXPECT_EQ(cache_.Stats().blocks.in_transfer, 0);
  EXPECT_EQ(tier_->Stats().entries, 1);
  EXPECT_EQ(tier_->Stats().sleeps, 1);
  ASSERT_THAT(tier_->Entries(), SizeIs(1));
  EXPECT_EQ(tier_->Entries()[0].position, 5);
}

TEST_F(ChunkTierTest, AWokenChunkIsInTheBlocksOfThePart) {
  Open();
  Sleep(1);
  const SequenceId part = Wake(1);
  EXPECT_THAT(mover_.jobs, IsEmpty()) << "copies of blocks may not have been made";
  tier_->StartWakes();
  ASSERT_THAT(mover_.jobs, SizeIs(1));
  EXPECT_EQ(mover_.jobs.begin()->second.blocks, BlocksOf(part));
  clock_.AdvanceUs(700);
  mover_.EndOne();
  const std::vector<ChunkTier::Woken> woken = Poll();
  ASSERT_THAT(woken, SizeIs(1));
  EXPECT_EQ(woken[0].part, part);
  EXPECT_TRUE(woken[0].whole);
  EXPECT_EQ(woken[0].tokens, kTokens);
  EXPECT_EQ(woken[0].us, 700);
  EXPECT_EQ(woken[0].blocks, BlocksOf(part));
  EXPECT_EQ(tier_->Stats().wakes, 1);
  EXPECT_TRUE(tier_->Has(KeyOf(1), Text(1))) << "until the chunk cache has it";
  tier_->Forget(KeyOf(1));
  EXPECT_FALSE(tier_->Has(KeyOf(1), Text(1)));
  cache_.Release(part, false);
}

TEST_F(ChunkTierTest, AWakeWaitsForStepsThatUseItsBlocks) {
  Open();
  Sleep(1);
  const SequenceId part = Wake(1);
  const std::vector<BlockId> blocks = BlocksOf(part);
  cache_.HoldForStep(std::span(blocks).first(1));
  tier_->StartWakes();
  EXPECT_THAT(mover_.jobs, IsEmpty());
  EXPECT_FALSE(tier_->idle());
  cache_.ReleaseStepHold(std::span(blocks).first(1));
  tier_->StartWakes();
  EXPECT_THAT(mover_.jobs, SizeIs(1));
  cache_.Release(part, false);
}

TEST_F(ChunkTierTest, BlocksStayHeldIfThePartEndsBeforeTheCopy) {
  Open();
  Sleep(1);
  const SequenceId part = Wake(1);
  tier_->StartWakes();
  cache_.Release(part, false);
  EXPECT_EQ(cache_.Stats().blocks.in_transfer, 2);
  Check();
  mover_.EndOne();
  EXPECT_THAT(Poll(), SizeIs(1));
  EXPECT_EQ(cache_.Stats().blocks.in_transfer, 0);
  EXPECT_TRUE(tier_->Has(KeyOf(1), Text(1))) << "it still sleeps";
}

TEST_F(ChunkTierTest, ADamagedChunkIsDroppedAndCounted) {
  Open();
  Sleep(1);
  const SequenceId part = Wake(1);
  tier_->StartWakes();
  mover_.EndOne(absl::DataLossError("checksum"));
  const std::vector<ChunkTier::Woken> woken = Poll();
  ASSERT_THAT(woken, SizeIs(1));
  EXPECT_FALSE(woken[0].whole);
  EXPECT_EQ(tier_->Stats().damaged, 1);
  EXPECT_EQ(tier_->Stats().wakes, 0);
  EXPECT_FALSE(tier_->Has(KeyOf(1), Text(1)));
  cache_.Release(part, false);
}

TEST_F(ChunkTierTest, AFailedCopyOfThePoolIsNoDamage) {
  Open();
  Sleep(1);
  const SequenceId part = Wake(1);
  tier_->StartWakes();
  mover_.EndOne(absl::InternalError("device"));
  EXPECT_FALSE(Poll()[0].whole);
  EXPECT_EQ(tier_->Stats().damaged, 0);
  EXPECT_TRUE(tier_->Has(KeyOf(1), Text(1)));
  ASSERT_TRUE(FallAsleep(2));
  mover_.EndOne(absl::InternalError("device"));
  Poll();
  EXPECT_FALSE(tier_->Has(KeyOf(2), Text(2)));
  EXPECT_EQ(tier_->Stats().entries, 1);
  cache_.Release(part, false);
}

TEST_F(ChunkTierTest, AChunkThatFallsAsleepIsTakenBackWithItsBlocks) {
  Open();
  ASSERT_TRUE(FallAsleep(1));
  std::vector<BlockId> stored;
  const auto store = [&](int32_t position, std::span<const BlockId> blocks) {
    EXPECT_EQ(position, 5);
    stored.assign(blocks.begin(), blocks.end());
    return true;
  };
  EXPECT_FALSE(tier_->TakeBack(KeyOf(2), Text(2), store));
  EXPECT_FALSE(tier_->TakeBack(KeyOf(1), Text(2), store)) << "tokens are compared";
  EXPECT_FALSE(tier_->TakeBack(KeyOf(1), Text(1), [](int32_t, auto) { return false; }));
  EXPECT_TRUE(tier_->Has(KeyOf(1), Text(1)));
  EXPECT_TRUE(tier_->TakeBack(KeyOf(1), Text(1), store));
  EXPECT_EQ(stored, mover_.jobs.begin()->second.blocks);
  EXPECT_TRUE(mover_.jobs.begin()->second.cancelled);
  EXPECT_FALSE(tier_->Has(KeyOf(1), Text(1)));
  mover_.EndOne();
  Poll();
  EXPECT_EQ(tier_->Stats().entries, 0);
  EXPECT_EQ(tier_->Stats().bytes, 0);
}

TEST_F(ChunkTierTest, ChunksThatFallAsleepHaveFewBlocksAtOnce) {
  Open(/*chunks=*/4, /*max_falling_blocks=*/3);
  ASSERT_TRUE(FallAsleep(1)) << "one chunk always may";
  EXPECT_FALSE(FallAsleep(2));
  mover_.EndOne();
  Poll();
  EXPECT_TRUE(FallAsleep(2));
}

TEST_F(ChunkTierTest, TheLeastRecentlyUsedSleeperGoesAtTheLimit) {
  Open(/*chunks=*/2);
  Sleep(1);
  Sleep(2);
  tier_->LeaveAsleep(tier_->ToWake(KeyOf(1), Text(1)));
  Sleep(3);
  EXPECT_TRUE(tier_->Has(KeyOf(1), Text(1)));
  EXPECT_FALSE(tier_->Has(KeyOf(2), Text(2)));
  EXPECT_EQ(tier_->Stats().dropped, 1);
}

// A request may have decided to wake a chunk, and not have its blocks yet.
TEST_F(ChunkTierTest, ASleeperThatIsToBeWokenIsNotEvicted) {
  Open(/*chunks=*/1);
  Sleep(1);
  const std::shared_ptr<const PackedKv> kv = tier_->ToWake(KeyOf(1), Text(1));
  EXPECT_FALSE(FallAsleep(2));
  EXPECT_TRUE(tier_->Has(KeyOf(1), Text(1)));
  tier_->LeaveAsleep(kv);
  EXPECT_TRUE(FallAsleep(2));
}

TEST_F(ChunkTierTest, AChunkIsNotWokenIfComputingItIsExpectedToBeFaster) {
  Open();
  Sleep(1);
  tier_->OnComputed(100, 1000);  // 70 us for the chunk
  std::shared_ptr<const PackedKv> kv = tier_->ToWake(KeyOf(1), Text(1));
  ASSERT_NE(kv, nullptr) << "about 2 us at the first guess";
  const SequenceId part = Begin();
  tier_->Wake(KeyOf(1), std::move(kv), kTokens, part, cache_.BlockTable(part));
  tier_->StartWakes();
  mover_.EndOne(absl::OkStatus(), /*busy_us=*/1'000'000);
  Poll();
  EXPECT_EQ(tier_->ToWake(KeyOf(1), Text(1)), nullptr);
  for (int i = 0; i < 50; ++i) tier_->OnComputed(1, 1'000'000);
  kv = tier_->ToWake(KeyOf(1), Text(1));
  EXPECT_NE(kv, nullptr);
  tier_->LeaveAsleep(kv);
  cache_.Release(part, false);
}

TEST_F(ChunkTierTest, ClearForgetsSleepersAndChunksThatFallAsleep) {
  Open();
  const CacheNamespace other{2};
  Sleep(1);
  Sleep(2, other);
  ASSERT_TRUE(FallAsleep(3));
  ASSERT_TRUE(FallAsleep(4, other));
  tier_->Clear(CacheNamespace{1});
  EXPECT_FALSE(tier_->Has(KeyOf(1), Text(1)));
  EXPECT_FALSE(tier_->Has(KeyOf(3), Text(3)));
  EXPECT_TRUE(tier_->Has(KeyOf(2, other), Text(2)));
  mover_.EndAll();
  Poll();
  EXPECT_FALSE(tier_->Has(KeyOf(3), Text(3)));
  EXPECT_TRUE(tier_->Has(KeyOf(4, other), Text(4)));
  tier_->Clear({});
  EXPECT_EQ(tier_->Stats().entries, 0);
  EXPECT_EQ(tier_->Stats().bytes, 0);
}

TEST_F(ChunkTierTest, AChunkThatIsClearedWhileItWakesStillReachesItsRequest) {
  Open();
  Sleep(1);
  const SequenceId part = Wake(1);
  tier_->StartWakes();
  tier_->Clear({});
  mover_.EndOne();
  EXPECT_TRUE(Poll()[0].whole);
  EXPECT_EQ(tier_->Stats().entries, 0);
  EXPECT_EQ(tier_->Stats().bytes, 0);
  cache_.Release(part, false);
}

TEST_F(ChunkTierTest, AfterShutdownNothingFallsAsleep) {
  Open();
  ASSERT_TRUE(FallAsleep(1));
  tier_->Shutdown();
  EXPECT_FALSE(FallAsleep(2));
  mover_.EndOne();
  Poll();
  EXPECT_TRUE(tier_->idle());
}

TEST_F(ChunkTierTest, WithoutHostMemoryNothingSleeps) {
  Open(/*chunks=*/0);
  EXPECT_FALSE(tier_->on());
  EXPECT_FALSE(FallAsleep(1));
  EXPECT_THAT(mover_.jobs, IsEmpty());
}

}  // namespace
}  // namespace baton
