#include "cache/water_marks.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(WaterMarks, AboveTheHighOneBlocksAreEvictedDownToTheLowOne) {
  const WaterMarks marks{.high = 0.9, .low = 0.7};
  EXPECT_EQ(marks.Excess(90, 100), 0);
  EXPECT_EQ(marks.Excess(91, 100), 21);
  EXPECT_EQ(marks.Excess(100, 100), 30);
  EXPECT_EQ(marks.Excess(110, 100), 40) << "blocks above the limit of a shrunk pool";
}

TEST(WaterMarks, AMarkOfOneEvictsNothingAheadOfNeed) {
  const WaterMarks marks;
  EXPECT_EQ(marks.Excess(100, 100), 0);
}

TEST(WaterMarks, APoolOfOneBlockMayBeFullUnlessItsMarkIsLower) {
  EXPECT_EQ((WaterMarks{.high = 1.0, .low = 0.5}.Excess(1, 1)), 0);
  EXPECT_EQ((WaterMarks{.high = 0.9, .low = 0.5}.Excess(1, 1)), 1);
}

}  // namespace
}  // namespace baton
