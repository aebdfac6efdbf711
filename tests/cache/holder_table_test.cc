#include "cache/index/holder_table.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr IndexedWorker kA{1}, kB{2};

TEST(HolderTable, EveryWorkerAndTierHasItsNumber) {
  HolderTable table;
  const auto a = table.FindOrAdd(kA, CacheTier::kDevice);
  const auto a_host = table.FindOrAdd(kA, CacheTier::kHost);
  const auto b = table.FindOrAdd(kB, CacheTier::kDevice);
  ASSERT_TRUE(a && a_host && b);
  EXPECT_NE(*a, *a_host);
  EXPECT_NE(*a, *b);
  EXPECT_EQ(table.FindOrAdd(kA, CacheTier::kDevice), a);
  EXPECT_EQ(table.Find(kB, CacheTier::kDevice), b);
  EXPECT_EQ(table.Find(kB, CacheTier::kDisk), std::nullopt);
  EXPECT_EQ(table.owner(*a_host).worker, kA);
  EXPECT_EQ(table.owner(*a_host).tier, CacheTier::kHost);
  EXPECT_EQ(table.live_words(), 1u);
  EXPECT_EQ(table.LiveWord(0), 7u);
}

TEST(HolderTable, RetiredNumbersAreNotReusedBeforeTheyAreRecycled) {
  HolderTable table;
  const auto first = table.FindOrAdd(kA, CacheTier::kDevice);
  EXPECT_EQ(table.Retire(kA), std::vector<HolderId>{*first});
  EXPECT_TRUE(table.IsRetired(*first));
  EXPECT_EQ(table.Find(kA, CacheTier::kDevice), std::nullopt);
  EXPECT_EQ(table.LiveWord(0), 0u);
  EXPECT_TRUE(table.Retire(kB).empty());
  const auto second = table.FindOrAdd(kA, CacheTier::kDevice);
  EXPECT_NE(second, first);
  const uint64_t assignments = table.assignments();
  table.Recycle(1);
  EXPECT_FALSE(table.has_retired());
  EXPECT_EQ(table.FindOrAdd(kB, CacheTier::kDevice), first);
  EXPECT_GT(table.assignments(), assignments);
  EXPECT_EQ(table.owner(*first).worker, kB);
  EXPECT_FALSE(table.IsRetired(*first));
}

TEST(HolderTable, RefusesMoreHoldersThanTheMaximum) {
  HolderTable table;
  for (size_t i = 0; i < HolderTable::kMaxHolders; ++i) {
    ASSERT_TRUE(table.FindOrAdd(IndexedWorker(static_cast<uint32_t>(i)), CacheTier::kDisk));
  }
  EXPECT_EQ(table.FindOrAdd(IndexedWorker(UINT32_MAX), CacheTier::kDisk), std::nullopt);
  EXPECT_EQ(table.Find(IndexedWorker(UINT32_MAX), CacheTier::kDisk), std::nullopt);
  EXPECT_EQ(table.owner(65'535).worker, IndexedWorker(65'535));
}

}  // namespace
}  // namespace baton
