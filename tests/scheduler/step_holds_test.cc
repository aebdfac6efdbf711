#include "scheduler/step_holds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/scheduler/scheduler_bench.h"

namespace baton {
namespace {

using ::testing::ElementsAre;

class StepHoldsTest : public ::testing::Test {
 protected:
  // Returns the blocks of a sequence that has ended. None of them is cached.
  std::vector<BlockId> EndedSequence(uint64_t id, int32_t blocks) {
    const SequenceId sequence(id);
    EXPECT_TRUE(cache_.Begin(sequence, kSpace, {}, 100).ok());
    EXPECT_TRUE(cache_.Reserve(sequence, blocks * 4).ok());
    const std::vector<BlockId> table(cache_.BlockTable(sequence).begin(),
                                     cache_.BlockTable(sequence).end());
    hold_(table);
    cache_.Release(sequence, /*keep=*/false);
    return table;
  }

  ManualClock clock_;
  KvCacheManager cache_{Pool(16), &clock_};
  StepHolds holds_{&cache_};
  std::function<void(std::span<const BlockId>)> hold_ = [](std::span<const BlockId>) {};
};

TEST_F(StepHoldsTest, AStepHoldsBlocksUntilItIsCollected) {
  const int64_t first = holds_.Submit();
  const int64_t second = holds_.Submit();
  EXPECT_EQ(first, 1);
  EXPECT_EQ(holds_.in_flight(), 2);
  hold_ = [&](std::span<const BlockId> blocks) { holds_.Hold(first, blocks); };
  const std::vector<BlockId> early = EndedSequence(1, 2);
  hold_ = [&](std::span<const BlockId> blocks) { holds_.Hold(second, blocks); };
  const std::vector<BlockId> late = EndedSequence(2, 3);
  EXPECT_EQ(cache_.step_blocks(), 5);
  EXPECT_EQ(cache_.available_blocks(), 11);
  EXPECT_THAT(holds_.Held(), ElementsAre(early[0], early[1], late[0], late[1], late[2]));
  EXPECT_TRUE(cache_.CheckStepHolds(holds_.Held()).ok());
  holds_.Collect();
  EXPECT_FALSE(holds_.InFlight(first));
  EXPECT_TRUE(holds_.InFlight(second));
  EXPECT_EQ(cache_.step_blocks(), 3);
  EXPECT_FALSE(holds_.empty());
  holds_.Collect();
  EXPECT_TRUE(holds_.empty());
  EXPECT_EQ(cache_.available_blocks(), 16);
}

TEST_F(StepHoldsTest, BlocksOfTheNextStepAreHeldUntilItIsCollected) {
  holds_.Submit();
  hold_ = [&](std::span<const BlockId> blocks) { holds_.HoldForNext(blocks); };
  EndedSequence(1, 2);
  holds_.Collect();
  EXPECT_EQ(cache_.step_blocks(), 2) << "the earlier step does not use them";
  EXPECT_TRUE(holds_.holds_for_next());
  holds_.Submit();
  EXPECT_FALSE(holds_.holds_for_next());
  EXPECT_EQ(cache_.step_blocks(), 2);
  holds_.Collect();
  EXPECT_EQ(cache_.step_blocks(), 0);
}

TEST_F(StepHoldsTest, ReleasesHoldsForANextStepThatNeverCame) {
  hold_ = [&](std::span<const BlockId> blocks) { holds_.HoldForNext(blocks); };
  EndedSequence(1, 2);
  holds_.ReleaseForNext();
  EXPECT_EQ(cache_.available_blocks(), 16);
  EXPECT_TRUE(holds_.empty());
}

TEST_F(StepHoldsTest, HoldsABlockThatIsFreeAgain) {
  const std::vector<BlockId> freed = EndedSequence(1, 1);
  EXPECT_EQ(cache_.available_blocks(), 16);
  holds_.HoldForNext(freed);
  EXPECT_EQ(cache_.available_blocks(), 15);
  EXPECT_TRUE(cache_.CheckConservation().ok()) << cache_.CheckConservation();
  holds_.ReleaseForNext();
  EXPECT_EQ(cache_.available_blocks(), 16);
}

TEST_F(StepHoldsTest, ReleasesEverythingAtItsEnd) {
  {
    StepHolds holds(&cache_);
    const int64_t step = holds.Submit();
    hold_ = [&](std::span<const BlockId> blocks) { holds.Hold(step, blocks); };
    EndedSequence(1, 2);
    hold_ = [&](std::span<const BlockId> blocks) { holds.HoldForNext(blocks); };
    EndedSequence(2, 2);
  }
  EXPECT_EQ(cache_.available_blocks(), 16);
}

TEST(StepHoldsDeathTest, OnlyStepsInFlightHoldBlocks) {
  ManualClock clock;
  KvCacheManager cache(Pool(16), &clock);
  StepHolds holds(&cache);
  EXPECT_DEATH(holds.Hold(1, {}), "step 1 is not in flight");
  EXPECT_DEATH(holds.Collect(), "no step is in flight");
}

}  // namespace
}  // namespace baton
