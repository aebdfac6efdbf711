// Chunks of PromptParts that sleep in host memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "engine/prompt_parts.h"
#include "tests/engine/parts_bench.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Use = PromptParts::Use;

constexpr SequenceId kFirst{3};
constexpr SequenceId kSecond{4};
constexpr int64_t kHourUs = 3'600'000'000;

class PromptPartsSleep : public testing::Test {
 protected:
  void TearDown() override {
    for (const SequenceId main : {kFirst, kSecond}) bench_.End(main);
    bench_.mover.EndAll();
    PollTier();
    EXPECT_TRUE(parts_.idle());
    EXPECT_TRUE(bench_.tier.idle());
    Check();
    EXPECT_EQ(bench_.cache.Stats().blocks.owned, 0);
    EXPECT_EQ(bench_.cache.Stats().blocks.in_transfer, 0);
    parts_.Clear({});
  }
  void Check() {
    std::vector<BlockId> held;
    bench_.tier.AppendHeld(held);
    EXPECT_TRUE(bench_.cache.CheckTransferHolds(held).ok());
    EXPECT_TRUE(bench_.cache.CheckConservation().ok()) << bench_.cache.CheckConservation();
    EXPECT_TRUE(parts_.CheckInvariants().ok());
  }
  void PollTier() {
    bench_.tier.StartWakes();
    for (const ChunkTier::Woken& woken : bench_.tier.Poll()) parts_.OnWoken(woken);
    Check();
  }
  void Queue(SequenceId main, const ChunkedPrompt& prompt = PartsBench::TwoChunks()) {
    ASSERT_TRUE(bench_.scheduler.Add(bench_.Add(main, prompt, Use::kLocal)).ok());
  }
  // Computes the prompt's parts, and ends it.
  void Compute(const ChunkedPrompt& prompt = PartsBench::TwoChunks()) {
    Queue(kFirst, prompt);
    while (bench_.scheduler.frame(kFirst) == nullptr) bench_.StepWithParts();
    bench_.End(kFirst);
  }
  void FallAsleep() {
    bench_.clock.AdvanceUs(kHourUs);
    parts_.SleepCold();
  }
  void Sleep() {
    FallAsleep();
    bench_.mover.EndAll();
    PollTier();
  }
  bool Ready(SequenceId main) { return bench_.scheduler.frame(main) != nullptr; }

  PartsBench bench_{/*host_bytes=*/1'000'000};
  PromptParts& parts_ = bench_.prompt_parts;
};

TEST_F(PromptPartsSleep, ARequestWakesItsChunksAndStoresThemAgain) {
  Compute();
  Sleep();
  EXPECT_EQ(parts_.SleepingStats().entries, 2);
  EXPECT_EQ(parts_.Stats().entries, 1) << "the system part stays awake";
  EXPECT_TRUE(parts_.HasOrAwaits(bench_.layout->parts[1]));

  Queue(kSecond);
  EXPECT_THAT(bench_.StepWithParts().chunks, IsEmpty()) << "nothing is computed";
  PollTier();
  ASSERT_THAT(bench_.mover.jobs, SizeIs(2));
  EXPECT_EQ(parts_.TakeCosts(kSecond).ledger.hits, 0) << "not yet";
  bench_.mover.EndOne();
  PollTier();
  EXPECT_FALSE(Ready(kSecond));
  bench_.clock.AdvanceUs(70);
  bench_.mover.EndOne();
  PollTier();
  EXPECT_TRUE(Ready(kSecond));
  const PromptParts::Costs costs = parts_.TakeCosts(kSecond);
  EXPECT_EQ(costs.ledger.hits, 2);
  EXPECT_EQ(costs.ledger.wake_us, 70);
  EXPECT_EQ(costs.ledger.compute_us, 0);
  EXPECT_EQ(costs.computed_tokens, 0);
  EXPECT_EQ(parts_.SleepingStats().entries, 0) << "the chunk cache has them";
  EXPECT_EQ(parts_.SleepingStats().wakes, 2);
  EXPECT_EQ(parts_.Stats().entries, 3);
  EXPECT_EQ(parts_.Stats().hits, 1 + 2) << "with the system part";
}

TEST_F(PromptPartsSleep, TwoRequestsShareAWakeAndBothCountTheHit) {
  Compute();
  Sleep();
  Queue(kFirst);
  bench_.StepWithParts();
  Queue(kSecond);
  bench_.StepWithParts();
  PollTier();
  EXPECT_THAT(bench_.mover.jobs, SizeIs(2));
  bench_.mover.EndAll();
  PollTier();
  EXPECT_TRUE(Ready(kFirst) && Ready(kSecond));
  for (const SequenceId main : {kFirst, kSecond}) {
    const PromptParts::Costs costs = parts_.TakeCosts(main);
    EXPECT_EQ(costs.ledger.hits, 2);
    EXPECT_EQ(costs.cached_tokens, 6 + 9 + 4);
  }
}

TEST_F(PromptPartsSleep, ADamagedChunkIsComputed) {
  Compute();
  Sleep();
  Queue(kSecond);
  bench_.StepWithParts();
  PollTier();
  bench_.mover.EndOne(absl::DataLossError("checksum"));
  bench_.mover.EndOne();
  PollTier();
  EXPECT_FALSE(Ready(kSecond));
  const SchedulerOutput plan = bench_.StepWithParts();
  ASSERT_THAT(plan.chunks, SizeIs(1));
  EXPECT_EQ(plan.chunks[0].begin, 0);
  EXPECT_EQ(plan.chunks[0].count, 9);
  EXPECT_TRUE(Ready(kSecond));
  const PromptParts::Costs costs = parts_.TakeCosts(kSecond);
  EXPECT_EQ(costs.ledger.hits, 1);
  EXPECT_EQ(costs.computed_tokens, 9);
  EXPECT_EQ(parts_.SleepingStats().damaged, 1);
  EXPECT_EQ(parts_.SleepingStats().entries, 0);
}

TEST_F(PromptPartsSleep, ARequestThatEndsLeavesItsChunksAsleep) {
  Compute();
  Sleep();
  Queue(kSecond);
  bench_.StepWithParts();
  bench_.End(kSecond);  // before the copies start
  PollTier();
  bench_.mover.EndOne();
  PollTier();
  EXPECT_EQ(parts_.SleepingStats().entries, 2);
  EXPECT_EQ(parts_.Stats().entries, 1);
  bench_.mover.EndAll();
  PollTier();
  Queue(kFirst);
  bench_.StepWithParts();
  PollTier();
  EXPECT_THAT(bench_.mover.jobs, SizeIs(2)) << "they can be woken again";
}

TEST_F(PromptPartsSleep, AChunkThatFallsAsleepIsFoundWithoutACopy) {
  Compute();
  FallAsleep();
  ASSERT_THAT(bench_.mover.jobs, SizeIs(2));
  EXPECT_EQ(parts_.Stats().entries, 1);
  Queue(kSecond);
  bench_.StepWithParts();
  EXPECT_TRUE(Ready(kSecond));
  EXPECT_EQ(parts_.TakeCosts(kSecond).ledger.hits, 2);
  EXPECT_EQ(parts_.Stats().entries, 3);
  EXPECT_EQ(parts_.Stats().hits, 1 + 2);
  bench_.mover.EndAll();
  PollTier();
  EXPECT_EQ(parts_.SleepingStats().entries, 0);
}

TEST_F(PromptPartsSleep, AWokenChunkWithoutRoomIsBypassedAndSleepsOn) {
  Compute();
  Sleep();
  Queue(kSecond);
  bench_.StepWithParts();
  PollTier();
  ASSERT_TRUE(bench_.cache.Resize(4).ok());  // a budget of 2 blocks for 3 + 1
  parts_.PoolResized();
  bench_.mover.EndAll();
  PollTier();
  EXPECT_TRUE(Ready(kSecond));
  EXPECT_EQ(parts_.TakeCosts(kSecond).ledger.hits, 2);
  EXPECT_EQ(parts_.SleepingStats().entries, 1) << "the long one";
  EXPECT_EQ(parts_.Stats().bypasses, 1);
}

TEST_F(PromptPartsSleep, ChunksThatSleepHereAreNotAskedFromAPeer) {
  Compute();
  Sleep();
  SequenceSpec spec = bench_.Add(kSecond, PartsBench::TwoChunks(), Use::kReceived);
  ASSERT_TRUE(bench_.scheduler.AddWaitingForKv(std::move(spec)).ok());
  EXPECT_THAT(parts_.CreatedFor(kSecond), IsEmpty());
  PollTier();
  bench_.mover.EndAll();
  PollTier();
  EXPECT_TRUE(parts_.Ready(kSecond));
  EXPECT_THAT(parts_.TakeProgress(), ElementsAre(kSecond));
}

TEST_F(PromptPartsSleep, ClearForgetsSleepersOfTheNamespace) {
  Compute();
  Sleep();
  parts_.Clear(CacheNamespace{77});
  EXPECT_EQ(parts_.SleepingStats().entries, 2);
  parts_.Clear(CacheNamespace(0));
  EXPECT_EQ(parts_.SleepingStats().entries, 0);
  EXPECT_THAT(parts_.Entries(), IsEmpty());
}

TEST_F(PromptPartsSleep, TheChunksOfBothTiersAreListed) {
  Compute();
  Sleep();
  std::vector<CacheTier> tiers;
  for (const ChunkCache::EntryInfo& entry : parts_.Entries()) tiers.push_back(entry.tier);
  EXPECT_THAT(tiers, ElementsAre(CacheTier::kHost, CacheTier::kHost, CacheTier::kDevice));
}

}  // namespace
}  // namespace baton
