#include "cache/block_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace baton {
namespace {

using ::testing::ElementsAre;

TEST(BlockAllocator, HandsOutFreshBlocksOnlyWhenNoneHasReturned) {
  BlockAllocator allocator(4);
  std::vector<BlockId> first, second;
  ASSERT_TRUE(allocator.Allocate(2, BlockHolder::kSequence, first));
  EXPECT_EQ(allocator.Account().never_used, 2);
  allocator.ReleaseHolds(first, BlockHolder::kSequence);
  ASSERT_TRUE(allocator.Allocate(2, BlockHolder::kSequence, second));
  EXPECT_EQ(allocator.Account().never_used, 2);
  allocator.ReleaseHolds(second, BlockHolder::kSequence);
}

TEST(BlockAllocator, TakesNothingWhenThereIsTooLittle) {
  BlockAllocator allocator(3);
  std::vector<BlockId> blocks;
  EXPECT_FALSE(allocator.Allocate(4, BlockHolder::kSequence, blocks));
  EXPECT_TRUE(blocks.empty());
  EXPECT_EQ(allocator.free_count(), 3);
}

TEST(BlockAllocator, ABlockIsFreeWhenTheLastOfThreeKindsOfHolderIsGone) {
  BlockAllocator allocator(1);
  std::vector<BlockId> blocks;
  ASSERT_TRUE(allocator.Allocate(1, BlockHolder::kSequence, blocks));
  allocator.AddHold(blocks[0], BlockHolder::kRadixNode);
  allocator.AddHold(blocks[0], BlockHolder::kTransfer);
  EXPECT_EQ(allocator.Account().in_transfer, 1);
  allocator.ReleaseHold(blocks[0], BlockHolder::kTransfer);
  EXPECT_EQ(allocator.Account().owned, 1);
  allocator.ReleaseHold(blocks[0], BlockHolder::kSequence);
  EXPECT_EQ(allocator.Account().cached, 1);
  EXPECT_FALSE(allocator.is_free(blocks[0]));
  allocator.ReleaseHold(blocks[0], BlockHolder::kRadixNode);
  EXPECT_TRUE(allocator.is_free(blocks[0]));
}

TEST(BlockAllocator, ARunIsConsecutiveAndTheLowestThatIsFree) {
  BlockAllocator allocator(8);
  std::vector<BlockId> all, run;
  ASSERT_TRUE(allocator.Allocate(6, BlockHolder::kSequence, all));
  for (const int i : {1, 3, 4}) allocator.ReleaseHold(BlockId(i), BlockHolder::kSequence);
  ASSERT_TRUE(allocator.AllocateRun(2, BlockHolder::kSequence, run));
  EXPECT_THAT(run, ElementsAre(BlockId(3), BlockId(4)));
  EXPECT_FALSE(allocator.AllocateRun(3, BlockHolder::kSequence, run)) << "1, 6 and 7 are no run";
  EXPECT_EQ(allocator.free_count(), 3);
  EXPECT_TRUE(allocator.CheckConservation().ok());
  for (const int i : {0, 2, 3, 4, 5}) allocator.ReleaseHold(BlockId(i), BlockHolder::kSequence);
  run.clear();
  ASSERT_TRUE(allocator.AllocateRun(8, BlockHolder::kSequence, run));
  allocator.ReleaseHolds(run, BlockHolder::kSequence);
}

TEST(BlockAllocatorDeathTest, MisuseIsABug) {
  BlockAllocator allocator(2);
  EXPECT_DEATH(allocator.AddHold(BlockId(0), BlockHolder::kSequence), "free block");
  EXPECT_DEATH(allocator.ReleaseHold(BlockId(0), BlockHolder::kSequence), "no such hold");
  EXPECT_DEATH(allocator.is_free(BlockId(2)), "block 2 of 2");
  EXPECT_DEATH(
      {
        BlockAllocator leaking(1);
        std::vector<BlockId> blocks;
        leaking.Allocate(1, BlockHolder::kSequence, blocks);
      },
      "leaked");
}

// The literal model: a multiset of holders for each block.
class AllocatorModel {
 public:
  explicit AllocatorModel(int32_t total) : total_(total) {}
  void Add(BlockId block, BlockHolder holder) { holders_[block].insert(holder); }
  void Release(BlockId block, BlockHolder holder) {
    auto& holders = holders_[block];
    holders.erase(holders.find(holder));
    if (holders.empty()) holders_.erase(block);
  }
  bool Free(BlockId block) const { return !holders_.contains(block); }
  bool HasRun(int32_t count) const {
    for (int32_t begin = 0; begin + count <= total_; ++begin) {
      int32_t free = 0;
      while (free < count && Free(BlockId(begin + free))) ++free;
      if (free == count) return true;
    }
    return false;
  }
  BlockAllocator::Accounting Account() const {
    BlockAllocator::Accounting account{
        .total = total_, .free = 0, .in_transfer = 0, .owned = 0, .cached = 0, .never_used = 0};
    account.free = total_ - static_cast<int32_t>(holders_.size());
    for (const auto& [block, holders] : holders_) {
      if (holders.contains(BlockHolder::kTransfer)) {
        ++account.in_transfer;
      } else if (holders.contains(BlockHolder::kSequence)) {
        ++account.owned;
      } else {
        ++account.cached;
      }
    }
    return account;
  }
  const std::map<BlockId, std::multiset<BlockHolder>>& holders() const { return holders_; }

 private:
  int32_t total_;
  std::map<BlockId, std::multiset<BlockHolder>> holders_;
};

TEST(BlockAllocator, AgreesWithALiteralModelOverRandomOperations) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const int32_t total = 1 + random() % 24;
    BlockAllocator allocator(total);
    AllocatorModel model(total);
    std::set<BlockId> ever;
    for (int step = 0; step < 10'000; ++step) {
      const auto holder = static_cast<BlockHolder>(random() % kBlockHolderKinds);
      const uint32_t kind = random() % 5;
      if (kind < 2) {
        const int32_t count = random() % 4;
        std::vector<BlockId> blocks;
        const bool run = kind == 1;
        const bool possible = run ? model.HasRun(count) : count <= model.Account().free;
        ASSERT_EQ(run ? allocator.AllocateRun(count, holder, blocks)
                      : allocator.Allocate(count, holder, blocks),
                  possible);
        ASSERT_EQ(blocks.size(), possible ? count : 0);
        for (size_t i = 0; i < blocks.size(); ++i) {
          ASSERT_TRUE(model.Free(blocks[i]));
          if (run) {
            ASSERT_EQ(blocks[i].value(), blocks[0].value() + static_cast<int32_t>(i));
          }
          model.Add(blocks[i], holder);
          ever.insert(blocks[i]);
        }
      } else if (!model.holders().empty()) {
        const auto held = std::next(model.holders().begin(), random() % model.holders().size());
        const BlockId block = held->first;
        if (kind == 2) {
          allocator.AddHold(block, holder);
          model.Add(block, holder);
        } else {
          const BlockHolder present = *held->second.begin();
          allocator.ReleaseHold(block, present);
          model.Release(block, present);
        }
      }
      auto expected = model.Account();
      expected.never_used = total - static_cast<int32_t>(ever.size());
      ASSERT_EQ(allocator.Account(), expected);
      ASSERT_TRUE(allocator.CheckConservation().ok()) << allocator.CheckConservation();
    }
    while (!model.holders().empty()) {
      const auto& [block, holders] = *model.holders().begin();
      const BlockHolder holder = *holders.begin();
      const BlockId id = block;
      allocator.ReleaseHold(id, holder);
      model.Release(id, holder);
    }
  }
}

}  // namespace
}  // namespace baton
