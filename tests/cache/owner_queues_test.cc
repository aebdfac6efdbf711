#include "cache/owner_queues.h"

#include <gtest/gtest.h>

#include <array>

namespace baton {
namespace {

// Entry n has the key n.
class OwnerQueuesTest : public testing::Test {
 protected:
  OwnerSlot Owner(uint64_t id, double share) {
    const OwnerSlot slot = owners_.SlotOf({.id = id, .share = share});
    owners_.AddNamespace(slot);
    return slot;
  }
  void Add(OwnerSlot slot, int32_t entry, int32_t blocks) {
    queues_.Push(slot, entry, {.last_used = static_cast<uint64_t>(entry)});
    queues_.Count(slot, blocks);
  }

  CacheOwners owners_;
  OwnerQueues queues_{&owners_};
};

TEST_F(OwnerQueuesTest, WithoutSharesTheLowestKeyOfAllGoesFirst) {
  EXPECT_TRUE(queues_.empty());
  Add(kCommonSlot, 5, 3);
  Add(kCommonSlot, 2, 4);
  EXPECT_EQ(queues_.First(10).entry, 2);
  EXPECT_EQ(queues_.First(10).most_blocks, 7);
  const OwnerSlot owner = Owner(1, 0.5);
  owners_.DropShare(owner);
  Add(owner, 1, 1);
  EXPECT_EQ(queues_.First(10).entry, 1);
  EXPECT_EQ(queues_.size(), 3);
}

TEST_F(OwnerQueuesTest, OwnersOverTheirShareGoFirstDownToTheirShare) {
  const OwnerSlot half = Owner(1, 0.5), tenth = Owner(2, 0.1);
  Add(half, 1, 5);
  Add(tenth, 2, 4);
  Add(kCommonSlot, 3, 1);
  OwnerQueues::Victim victim = queues_.First(10);
  EXPECT_EQ(victim.entry, 2) << "the first entry is of an owner with exactly its share";
  EXPECT_EQ(victim.slot, tenth);
  EXPECT_EQ(victim.most_blocks, 3);
  queues_.Count(tenth, -3);
  victim = queues_.First(10);
  EXPECT_EQ(victim.entry, 3) << "the common slot has no share";
  EXPECT_EQ(victim.most_blocks, 1);
}

TEST_F(OwnerQueuesTest, WithoutEntriesOfOwnersOverTheirShareTheLowestKeyOfAllGoesFirst) {
  const OwnerSlot first = Owner(1, 0.5), second = Owner(2, 0.5);
  Add(first, 4, 3);
  Add(second, 2, 2);
  queues_.Count(kCommonSlot, 9);  // all of them are in use
  const OwnerQueues::Victim victim = queues_.First(10);
  EXPECT_EQ(victim.entry, 2);
  EXPECT_EQ(victim.most_blocks, 2);
}

TEST_F(OwnerQueuesTest, EntriesAreListedByOwner) {
  const OwnerSlot owner = Owner(1, 0.5);
  Add(owner, 4, 1);
  Add(owner, 3, 1);
  Add(kCommonSlot, 1, 1);
  std::array<int32_t, 4> out = {};
  ASSERT_EQ(queues_.First(owner, out), 2u);
  EXPECT_EQ(out[0], 3);
  EXPECT_EQ(out[1], 4);
  EXPECT_TRUE(queues_.Contains(owner, 4, {.last_used = 4}));
  EXPECT_FALSE(queues_.Contains(kCommonSlot, 4, {.last_used = 4}));
  queues_.Erase(owner, 4, {.last_used = 4});
  EXPECT_EQ(queues_.First(owner, out), 1u);
}

TEST(OwnerQueues, WithoutOwnersEverythingIsCommon) {
  OwnerQueues queues(nullptr);
  queues.Count(kCommonSlot, 2);
  queues.Push(kCommonSlot, 8, {});
  EXPECT_EQ(queues.First(4).entry, 8);
}

}  // namespace
}  // namespace baton
