#include "cache/cache_owners.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

OwnerSlot Use(CacheOwners& owners, uint64_t id, double share = 0.5) {
  const OwnerSlot slot = owners.SlotOf({.id = id, .share = share});
  owners.AddNamespace(slot);
  return slot;
}

TEST(CacheOwners, AnOwnerKeepsItsSlotWhileANamespaceHasIt) {
  CacheOwners owners;
  EXPECT_FALSE(owners.any());
  const OwnerSlot first = Use(owners, 1, 0.25), second = Use(owners, 2);
  EXPECT_NE(first, second);
  EXPECT_NE(first, kCommonSlot);
  EXPECT_TRUE(owners.any());
  EXPECT_EQ(Use(owners, 1, 0.75), first);
  EXPECT_EQ(owners.share(first), 0.75) << "the newest share counts";
  EXPECT_EQ(owners.namespaces(first), 2);
  owners.RemoveNamespace(first);
  EXPECT_EQ(owners.share(first), 0.75);
  owners.RemoveNamespace(first);
  EXPECT_EQ(owners.share(first), 0);
  EXPECT_EQ(Use(owners, 3), first) << "an unused slot is used again";
}

TEST(CacheOwners, WithoutAShareAnOwnerKeepsItsSlot) {
  CacheOwners owners;
  const OwnerSlot slot = Use(owners, 1);
  owners.DropShare(slot);
  EXPECT_EQ(owners.share(slot), 0);
  EXPECT_EQ(owners.SlotOf({.id = 1, .share = 1}), slot);
  EXPECT_EQ(owners.share(slot), 1);
}

TEST(CacheOwners, OwnersBeyondTheMostHaveTheCommonSlotUntilOneIsUnused) {
  CacheOwners owners;
  for (uint64_t id = 1; id <= CacheOwners::kMaxOwners; ++id) {
    EXPECT_NE(Use(owners, id), kCommonSlot);
  }
  EXPECT_EQ(Use(owners, 1000), kCommonSlot);
  EXPECT_EQ(owners.share(kCommonSlot), 0);
  EXPECT_EQ(owners.end(), CacheOwners::kSlots);
  const OwnerSlot of_seven = owners.SlotOf({.id = 7, .share = 0.5});
  owners.RemoveNamespace(of_seven);
  EXPECT_EQ(Use(owners, 1000), of_seven);
}

TEST(CacheOwners, WithoutNamespacesThereAreNoOwners) {
  CacheOwners owners;
  const OwnerSlot first = Use(owners, 1), second = Use(owners, 2);
  owners.RemoveNamespace(first);
  EXPECT_TRUE(owners.any());
  EXPECT_EQ(owners.SlotOf({.id = 2, .share = 0.5}), second) << "it is found behind unused slots";
  owners.RemoveNamespace(second);
  EXPECT_FALSE(owners.any());
  owners.AddNamespace(kCommonSlot);
  owners.RemoveNamespace(kCommonSlot);
  EXPECT_FALSE(owners.any());
}

}  // namespace
}  // namespace baton
