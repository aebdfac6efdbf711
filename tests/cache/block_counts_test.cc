#include "cache/block_counts.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

BlockCounts Of(int32_t full, int32_t window) {
  BlockCounts counts(full);
  counts[1] = window;
  return counts;
}

TEST(BlockCounts, GroupsAddUpApart) {
  EXPECT_EQ(Of(3, 1) + Of(4, 10), Of(7, 11));
  EXPECT_EQ(Of(3, 1) - Of(4, 0), Of(-1, 1));
  EXPECT_EQ(Of(3, 1) * 2, Of(6, 2));
  EXPECT_EQ(Of(3, 1).full(), 3);
  EXPECT_EQ(BlockCounts(3)[1], 0);
}

TEST(BlockCounts, TheFirstGroupThatLacksBlocksIsNamed) {
  EXPECT_EQ(Of(0, 0).FirstBelowZero(), -1) << "zero blocks satisfy a need of zero";
  EXPECT_EQ(Of(-1, -1).FirstBelowZero(), 0);
  EXPECT_EQ(Of(5, -1).FirstBelowZero(), 1);
}

}  // namespace
}  // namespace baton
