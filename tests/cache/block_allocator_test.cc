#include "cache/block_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tests/common/random_operations.h"

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
  allocator.AddHold(blocks[0], BlockHolder::kCache);
  allocator.AddHold(blocks[0], BlockHolder::kTransfer);
  EXPECT_EQ(allocator.Account().in_transfer, 1);
  allocator.ReleaseHold(blocks[0], BlockHolder::kTransfer);
  EXPECT_EQ(allocator.Account().owned, 1);
  allocator.ReleaseHold(blocks[0], BlockHolder::kSequence);
  EXPECT_EQ(allocator.Account().cached, 1);
  EXPECT_FALSE(allocator.is_free(blocks[0]));
  allocator.ReleaseHold(blocks[0], BlockHolder::kCache);
  EXPECT_TRUE(allocator.is_free(blocks[0]));
}

TEST(BlockAllocator, ARunIsConsecutiveAndTheLowestThatIsFree) {
  BlockAllocator allocator(8);
  std::vector<BlockId> all, run;
  ASSERT_TRUE(allocator.Allocate(6, BlockHolder::kSequence, all));
  for (const int i : {1, 3, 4}) allocator.ReleaseHold(BlockId(i), BlockHolder::kSequence);
  ASSERT_TRUE(allocator.AllocateRun(2, BlockHolder::kSequence, run));
  EXPECT_THAT(run, ElementsAre(BlockId(3), BlockId(4)));
  EXPECT_FALSE(allocator.AllocateRun(3, BlockHolder::kSequence, run)) << "1, 6 and 7 are not a run";
  EXPECT_EQ(allocator.free_count(), 3);
  EXPECT_TRUE(allocator.CheckConservation().ok());
  for (const int i : {0, 2, 3, 4, 5}) allocator.ReleaseHold(BlockId(i), BlockHolder::kSequence);
  run.clear();
  ASSERT_TRUE(allocator.AllocateRun(8, BlockHolder::kSequence, run));
  allocator.ReleaseHolds(run, BlockHolder::kSequence);
}

TEST(BlockAllocator, GrowsWithinItsCapacityAndShrinksAsBlocksAreReleased) {
  BlockAllocator allocator(2, 6);
  std::vector<BlockId> blocks;
  ASSERT_TRUE(allocator.Allocate(2, BlockHolder::kSequence, blocks));
  EXPECT_FALSE(allocator.Allocate(1, BlockHolder::kSequence, blocks));
  allocator.Resize(5);
  ASSERT_TRUE(allocator.Allocate(2, BlockHolder::kSequence, blocks));
  EXPECT_EQ(allocator.free_count(), 1);

  allocator.Resize(1);
  EXPECT_EQ(allocator.free_count(), 0);
  EXPECT_EQ(allocator.retiring(), 3);
  EXPECT_EQ(allocator.total(), 4) << "held blocks above the limit still count";
  allocator.ReleaseHold(BlockId(3), BlockHolder::kSequence);
  allocator.ReleaseHold(BlockId(1), BlockHolder::kSequence);
  EXPECT_EQ(allocator.retiring(), 1);
  EXPECT_EQ(allocator.free_count(), 0);
  EXPECT_TRUE(allocator.CheckConservation().ok()) << allocator.CheckConservation();

  allocator.Resize(6);
  EXPECT_EQ(allocator.retiring(), 0);
  EXPECT_EQ(allocator.free_count(), 4) << "1 and 3 were returned, 4 and 5 were never used";
  EXPECT_EQ(allocator.Account().never_used, 2);
  for (const int i : {0, 2}) allocator.ReleaseHold(BlockId(i), BlockHolder::kSequence);
}

TEST(BlockAllocator, OnlyTheLastHolderOfAForkedBlockMayWriteIt) {
  BlockAllocator allocator(3);
  std::vector<BlockId> blocks;
  ASSERT_TRUE(allocator.Allocate(1, BlockHolder::kSequence, blocks));
  const BlockId shared = blocks[0];
  allocator.AddHolds(blocks, BlockHolder::kSequence);
  allocator.AddHolds(blocks, BlockHolder::kSequence);
  const BlockId second = allocator.MakeWritable(shared, BlockHolder::kSequence).value();
  const BlockId third = allocator.MakeWritable(shared, BlockHolder::kSequence).value();
  EXPECT_EQ(std::set({shared, second, third}).size(), 3u);
  EXPECT_EQ(allocator.MakeWritable(shared, BlockHolder::kSequence), shared)
      << "no other holder is left";
  EXPECT_EQ(allocator.free_count(), 0);
  allocator.AddHolds(blocks, BlockHolder::kSequence);
  EXPECT_EQ(allocator.MakeWritable(shared, BlockHolder::kSequence), std::nullopt);
  EXPECT_EQ(allocator.holds(shared, BlockHolder::kSequence), 2u) << "a failed call changes nothing";
  for (const BlockId block : {shared, shared, second, third}) {
    allocator.ReleaseHold(block, BlockHolder::kSequence);
  }
}

TEST(BlockAllocatorDeathTest, MisuseIsABug) {
  BlockAllocator allocator(2);
  EXPECT_DEATH(allocator.AddHold(BlockId(0), BlockHolder::kSequence), "free block");
  EXPECT_DEATH(allocator.ReleaseHold(BlockId(0), BlockHolder::kSequence), "no hold of this kind");
  EXPECT_DEATH(allocator.is_free(BlockId(2)), "block 2 of 2");
  EXPECT_DEATH(allocator.Resize(3), "3 blocks of 2");
  EXPECT_DEATH((void)allocator.MakeWritable(BlockId(1), BlockHolder::kSequence),
               "no hold of this kind");
  EXPECT_DEATH(
      {
        BlockAllocator leaking(1);
        std::vector<BlockId> blocks;
        leaking.Allocate(1, BlockHolder::kSequence, blocks);
      },
      "leaked");
}

// Reference model: a multiset of holders for each block.
class AllocatorModel {
 public:
  explicit AllocatorModel(int32_t limit) : limit_(limit) {}
  void Resize(int32_t limit) { limit_ = limit; }
  void Add(BlockId block, BlockHolder holder) {
    holders_[block].insert(holder);
    ever_.insert(block);
  }
  void Release(BlockId block, BlockHolder holder) {
    auto& holders = holders_[block];
    holders.erase(holders.find(holder));
    if (holders.empty()) holders_.erase(block);
  }
  bool Held(BlockId block) const { return holders_.contains(block); }
  bool Free(BlockId block) const { return block.value() < limit_ && !Held(block); }
  bool HasRun(int32_t count) const {
    if (count == 0) return true;
    for (int32_t begin = 0; begin + count <= limit_; ++begin) {
      int32_t free = 0;
      while (free < count && Free(BlockId(begin + free))) ++free;
      if (free == count) return true;
    }
    return false;
  }
  int32_t retiring() const {
    return std::count_if(holders_.begin(), holders_.end(),
                         [&](const auto& held) { return held.first.value() >= limit_; });
  }
  BlockAllocator::Accounting Account() const {
    BlockAllocator::Accounting account;
    account.total = limit_ + retiring();
    for (int32_t i = 0; i < limit_; ++i) account.free += Free(BlockId(i));
    account.never_used = std::max(0, limit_ - (ever_.empty() ? 0 : 1 + ever_.rbegin()->value()));
    for (const auto& [block, holders] : holders_) {
      if (holders.contains(BlockHolder::kTransfer)) {
        ++account.in_transfer;
      } else if (holders.contains(BlockHolder::kSequence)) {
        ++account.owned;
      } else if (holders.contains(BlockHolder::kCache)) {
        ++account.cached;
      } else {
        ++account.step;
      }
    }
    return account;
  }
  const std::set<BlockId>& ever() const { return ever_; }
  int32_t pinned() const {
    return std::count_if(holders_.begin(), holders_.end(), [](const auto& held) {
      return held.second.contains(BlockHolder::kTransfer) ||
             held.second.contains(BlockHolder::kStep);
    });
  }
  const std::map<BlockId, std::multiset<BlockHolder>>& holders() const { return holders_; }

 private:
  int32_t limit_;
  std::map<BlockId, std::multiset<BlockHolder>> holders_;
  std::set<BlockId> ever_;  // ids handed out so far; fresh ids go out in order
};

class AllocatorDriver {
 public:
  explicit AllocatorDriver(uint32_t seed)
      : random_(seed),
        capacity_(1 + random_() % 24),
        allocator_(random_() % (capacity_ + 1), capacity_),
        model_(allocator_.limit()) {}
  ~AllocatorDriver() {
    while (!model_.holders().empty()) Release();
  }

  void Step() {
    switch (random_() % 11) {
      case 0:
      case 1:
        Allocate(/*run=*/false);
        break;
      case 2:
      case 3:
        Allocate(/*run=*/true);
        break;
      case 4:
      case 5:
        if (!model_.holders().empty()) Hold();
        break;
      case 6:
        if (random_() % 4 == 0 && !model_.ever().empty()) Claim();
        if (!model_.holders().empty()) MakeWritable();
        break;
      case 7:
        if (random_() % 8 == 0) Resize();
        break;
      default:
        if (!model_.holders().empty()) Release();
    }
    ASSERT_EQ(allocator_.Account(), model_.Account());
    ASSERT_EQ(allocator_.retiring(), model_.retiring());
    ASSERT_EQ(allocator_.pinned(), model_.pinned());
    ASSERT_TRUE(allocator_.CheckConservation().ok()) << allocator_.CheckConservation();
  }

 private:
  BlockHolder AnyHolder() { return static_cast<BlockHolder>(random_() % kBlockHolderKinds); }
  BlockId AnyHeld() {
    return std::next(model_.holders().begin(), random_() % model_.holders().size())->first;
  }

  void Allocate(bool run) {
    const BlockHolder holder = AnyHolder();
    const int32_t count = random_() % 4;
    std::vector<BlockId> blocks;
    const bool possible = run ? model_.HasRun(count) : count <= model_.Account().free;
    ASSERT_EQ(run ? allocator_.AllocateRun(count, holder, blocks)
                  : allocator_.Allocate(count, holder, blocks),
              possible);
    ASSERT_EQ(blocks.size(), possible ? count : 0);
    for (size_t i = 0; i < blocks.size(); ++i) {
      ASSERT_TRUE(model_.Free(blocks[i]));
      if (run) {
        ASSERT_EQ(blocks[i].value(), blocks[0].value() + static_cast<int32_t>(i));
      }
      model_.Add(blocks[i], holder);
    }
  }

  void Hold() {
    const BlockId block = AnyHeld();
    const BlockHolder holder = AnyHolder();
    allocator_.AddHolds(std::span(&block, 1), holder);
    model_.Add(block, holder);
  }

  void Claim() {  // claims a block that is held, free again or retired
    const auto& ever = model_.ever();
    const BlockId block = *std::next(ever.begin(), random_() % ever.size());
    const BlockHolder holder = AnyHolder();
    allocator_.Claim(block, holder);
    model_.Add(block, holder);
  }

  void Release() {
    const BlockId block = AnyHeld();
    const BlockHolder holder = *model_.holders().at(block).begin();
    allocator_.ReleaseHold(block, holder);
    model_.Release(block, holder);
  }

  void MakeWritable() {
    const BlockId block = AnyHeld();
    const BlockHolder holder = *model_.holders().at(block).begin();
    const bool shared = model_.holders().at(block).count(holder) > 1;
    const bool possible = !shared || model_.Account().free > 0;
    const std::optional<BlockId> writable = allocator_.MakeWritable(block, holder);
    ASSERT_EQ(writable.has_value(), possible);
    if (!possible || !shared) {
      ASSERT_EQ(writable.value_or(block), block);
      return;
    }
    ASSERT_TRUE(model_.Free(*writable));
    model_.Add(*writable, holder);
    model_.Release(block, holder);
  }

  void Resize() {
    const int32_t limit = random_() % (capacity_ + 1);
    allocator_.Resize(limit);
    model_.Resize(limit);
  }

  std::mt19937 random_;
  const int32_t capacity_;
  BlockAllocator allocator_;
  AllocatorModel model_;
};

TEST(BlockAllocator, AgreesWithALiteralModelOverRandomOperations) {
  constexpr int kSeeds = RandomSeeds(20), kSteps = 100'000;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    AllocatorDriver driver(seed);
    for (int step = 0; step < kSteps; ++step) {
      driver.Step();
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "step " << step;
    }
  }
  ReportRandomOperations(kSeeds * kSteps);
}

TEST(BlockAllocator, ABlockThatIsOnlyCachedIsNotInUse) {
  BlockAllocator allocator(2);
  std::vector<BlockId> blocks;
  ASSERT_TRUE(allocator.Allocate(1, BlockHolder::kSequence, blocks));
  EXPECT_TRUE(allocator.is_in_use(blocks[0]));
  allocator.AddHold(blocks[0], BlockHolder::kCache);
  allocator.AddHold(blocks[0], BlockHolder::kTransfer);
  allocator.ReleaseHold(blocks[0], BlockHolder::kSequence);
  EXPECT_TRUE(allocator.is_in_use(blocks[0]));
  allocator.ReleaseHold(blocks[0], BlockHolder::kTransfer);
  EXPECT_FALSE(allocator.is_in_use(blocks[0]));
  allocator.ReleaseHold(blocks[0], BlockHolder::kCache);
}

}  // namespace
}  // namespace baton
