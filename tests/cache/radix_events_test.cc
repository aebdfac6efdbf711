// KV events of a tree's runs of 16 units. kv_cache_manager_events_test.cc has random tests.
#include "cache/radix_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "cache/radix_tree.h"
#include "tests/cache/literal_event_model.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = KvEvent::Kind;

constexpr CacheNamespace kSpace{1};

class PublishingTree {
 public:
  explicit PublishingTree(int32_t block_size)
      : block_size_(block_size), allocator_(256), tree_(block_size, &allocator_) {
    tree_.PublishTo(&batcher_);
  }

  // Inserts the whole blocks of `units`.
  void Cache(const std::vector<CacheUnit>& units) { Cache(units, kSpace); }
  void Cache(const std::vector<CacheUnit>& units, CacheNamespace space) {
    RadixLock root = tree_.Match(space, units, 0).lock;
    Insert(root, units);
  }
  void Insert(RadixLock& lock, const std::vector<CacheUnit>& units) {
    const int32_t count = static_cast<int32_t>(units.size()) / block_size_;
    std::vector<BlockId> blocks;
    ASSERT_TRUE(allocator_.Allocate(count, BlockHolder::kSequence, blocks));
    const std::vector<BlockId> own = blocks;
    tree_.Insert(lock, std::span(units).first(size_t(count) * block_size_), blocks);
    allocator_.ReleaseHolds(own, BlockHolder::kSequence);
  }

  std::vector<KvEvent> Events() {
    std::vector<KvEvent> all;
    for (const std::string& batch : batcher_.Take()) {
      ApplyEncoded(batch, held_);
      const auto events = DecodeKvEvents(batch);
      all.insert(all.end(), events->begin(), events->end());
    }
    return all;
  }
  std::set<Hash128> Held() {
    Events();
    return held_;
  }
  std::set<Hash128> Snapshot() const {
    KvEventBatcher all;
    tree_.PublishAll(all);
    std::set<Hash128> held;
    for (const std::string& batch : all.Take()) ApplyEncoded(batch, held);
    return held;
  }
  RadixTree& tree() { return tree_; }

 private:
  const int32_t block_size_;
  BlockAllocator allocator_;
  KvEventBatcher batcher_;
  RadixTree tree_;
  std::set<Hash128> held_;
};

std::vector<CacheUnit> Count(CacheUnit first, size_t count) {
  std::vector<CacheUnit> units(count);
  std::iota(units.begin(), units.end(), first);
  return units;
}

std::set<Hash128> Hashes(const std::vector<CacheUnit>& units) {
  const std::vector<Hash128> hashes = ChainedHashes(kSpace, units);
  return {hashes.begin(), hashes.end()};
}

TEST(RadixTreeEvents, BlocksOfSixteenAreTheirRuns) {
  PublishingTree tree(16);
  const std::vector<CacheUnit> units = Count(0, 48);
  const std::vector<Hash128> hashes = ChainedHashes(kSpace, units);
  tree.Cache({units.begin(), units.begin() + 32});
  tree.Cache(units);
  EXPECT_THAT(tree.Events(),
              ElementsAre(KvEvent{.kind = Kind::kStored, .parent = {}, .hashes = hashes}))
      << "the blocks must be one event, even if they arrive one by one";
  EXPECT_EQ(tree.tree().Evict(2), 2);
  EXPECT_THAT(
      tree.Events(),
      ElementsAre(KvEvent{.kind = Kind::kRemoved, .parent = {}, .hashes = {hashes[2], hashes[1]}}));
}

TEST(RadixTreeEvents, ARunOfSmallBlocksIsStoredWithItsLastBlockAndRemovedWithItsFirst) {
  PublishingTree tree(4);
  const std::vector<CacheUnit> units = Count(0, 36);
  for (size_t length = 4; length <= units.size(); length += 4) {
    const std::vector<CacheUnit> begin(units.begin(), units.begin() + length);
    tree.Cache(begin);
    EXPECT_EQ(tree.Held(), Hashes(begin)) << length;
  }
  for (size_t length = units.size(); length > 0; length -= 4) {
    EXPECT_EQ(tree.Held(), Hashes({units.begin(), units.begin() + length})) << length;
    EXPECT_EQ(tree.tree().Evict(1), 1);
  }
  EXPECT_THAT(tree.Held(), IsEmpty());
}

TEST(RadixTreeEvents, ARunOverSeveralNodesIsHashedAsOne) {
  PublishingTree tree(2);
  std::vector<CacheUnit> units = Count(0, 64);
  std::set<Hash128> want = Hashes(units);
  tree.Cache(units);
  for (size_t at = 2; at < 40; at += 6) {  // branches inside runs; each splits a node
    std::vector<CacheUnit> branch(units.begin(), units.begin() + at);
    for (const CacheUnit unit : Count(1000 * at, 40)) branch.push_back(unit);
    tree.Cache(branch);
    want.merge(Hashes(branch));
  }
  EXPECT_EQ(tree.Held(), want);
  EXPECT_EQ(tree.Snapshot(), want);
}

TEST(RadixTreeEvents, ARunThatTwoLargeBlocksBeginWithStaysUntilBothAreGone) {
  PublishingTree tree(64);
  const std::vector<CacheUnit> first = Count(0, 64);
  std::vector<CacheUnit> second = first;
  second[40] = 999;  // a unit of the third of four runs
  tree.Cache(first);
  tree.Cache(second);
  EXPECT_THAT(tree.Held(), SizeIs(6));
  EXPECT_EQ(tree.Snapshot(), tree.Held());
  EXPECT_EQ(tree.tree().Evict(1), 1);
  EXPECT_EQ(tree.Held(), Hashes(second));
  EXPECT_EQ(tree.tree().Evict(1), 1);
  EXPECT_THAT(tree.Held(), IsEmpty());
}

TEST(RadixTreeEvents, CutOffBlocksPublishNoMoreEvents) {
  PublishingTree tree(16);
  const std::vector<CacheUnit> units = Count(0, 48);
  tree.Cache(units);
  RadixLock held = tree.tree().Match(kSpace, units, 2).lock;
  tree.tree().Clear();
  EXPECT_THAT(tree.Held(), IsEmpty());
  tree.Insert(held, Count(100, 16));  // after the locked prefix, where no match ends
  EXPECT_THAT(tree.Held(), IsEmpty());
  tree.Cache(units);
  EXPECT_EQ(tree.Held(), Hashes(units));
  held.Drop();
  EXPECT_EQ(tree.Held(), Hashes(units)) << "the old blocks are freed, the new ones stay";
  EXPECT_EQ(tree.Snapshot(), Hashes(units));
}

TEST(RadixTreeEvents, ClearingANamespaceReportsEveryRunAsRemoved) {
  for (const int32_t block_size : {4, 16, 64}) {
    SCOPED_TRACE(block_size);
    PublishingTree tree(block_size);
    const std::vector<CacheUnit> units = Count(0, 192);
    std::vector<CacheUnit> branch(units.begin(), units.begin() + 128);
    for (const CacheUnit unit : Count(1000, 64)) branch.push_back(unit);
    tree.Cache(units);
    tree.Cache(branch);
    tree.Cache(units, CacheNamespace(2));
    RadixLock held = tree.tree().Match(kSpace, units, 64 / block_size).lock;
    EXPECT_EQ(tree.tree().Clear(kSpace), (192 + 64 - 64) / block_size)
        << "all except the locked blocks";
    const std::set<Hash128> others = tree.Held();
    EXPECT_THAT(others, SizeIs(12));
    EXPECT_EQ(tree.Snapshot(), others);
    EXPECT_TRUE(tree.tree().Contains(CacheNamespace(2), units));
    EXPECT_FALSE(tree.tree().Contains(kSpace, std::span(units).first(64)));
    tree.Insert(held, Count(100, 64));  // after the locked prefix, where no match ends
    EXPECT_EQ(tree.Held(), others);
    tree.Cache(units);
    EXPECT_THAT(tree.Held(), SizeIs(24));
    EXPECT_TRUE(tree.tree().CheckInvariants().ok()) << tree.tree().CheckInvariants();
    held.Drop();
    EXPECT_THAT(tree.Held(), SizeIs(24)) << "the old blocks are freed, the new ones stay";
    EXPECT_EQ(tree.Snapshot(), tree.Held());
    EXPECT_TRUE(tree.tree().CheckInvariants().ok()) << tree.tree().CheckInvariants();
  }
}

TEST(RadixTreeEvents, NamespacesDiffer) {
  PublishingTree tree(8);
  tree.Cache(Count(0, 32));
  tree.Cache(Count(0, 32), CacheNamespace(2));
  EXPECT_THAT(tree.Held(), SizeIs(4));
  EXPECT_EQ(tree.Snapshot(), tree.Held());
}

}  // namespace
}  // namespace baton
