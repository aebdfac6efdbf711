#include "model/shift_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ShiftGroups, RowsThatFollowEachOtherAreOneGroup) {
  const std::vector<TokenId> tokens = {1, 2, 3};
  const std::vector<SlotRun> runs = {{.end = 1, .position_shift = 5},
                                     {.begin = 1, .end = 2},
                                     {.begin = 2, .end = 3, .position_shift = -2},
                                     {.begin = 3, .end = 6, .position_shift = 5}};
  const StepChunk chunk{.tokens = tokens, .block_table = {}, .runs = runs};
  const std::vector<ShiftGroup> groups = ShiftGroupsOf(chunk);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].rows, 3);
  EXPECT_EQ(groups[0].runs, 4);
  EXPECT_EQ(groups[0].own_shift, 0);
  EXPECT_THAT(groups[0].shifts, ElementsAre(-2, 5));
  EXPECT_EQ(ShiftedQueriesOf(chunk), 6);
  const StepChunk ordinary{.tokens = tokens, .block_table = {}};
  EXPECT_THAT(ShiftGroupsOf(ordinary)[0].shifts, IsEmpty());
  EXPECT_EQ(ShiftedQueriesOf(ordinary), 0);
}

TEST(ShiftGroups, RowsWithPlacesAreGroupedByTheShiftOfTheirRun) {
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5};
  const std::vector<SlotRun> runs = {{.end = 2},
                                     {.begin = 2, .end = 4},
                                     {.begin = 4, .end = 6, .position_shift = 7},
                                     {.begin = 6, .end = 8, .position_shift = 7},
                                     {.begin = 8, .end = 9, .position_shift = 9}};
  const std::vector<RowPlace> places = {{.slot = 3, .run = 1},
                                        {.slot = 4, .run = 2},
                                        {.slot = 6, .run = 3},
                                        {.slot = 7, .run = 3},
                                        {.slot = 8, .run = 4}};
  const StepChunk chunk{.tokens = tokens, .block_table = {}, .runs = runs, .places = places};
  const std::vector<ShiftGroup> groups = ShiftGroupsOf(chunk);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].rows, 1);
  EXPECT_EQ(groups[0].runs, 2);
  EXPECT_THAT(groups[0].shifts, IsEmpty());
  EXPECT_EQ(groups[1].first_row, 1);
  EXPECT_EQ(groups[1].rows, 3);
  EXPECT_EQ(groups[1].runs, 4);
  EXPECT_THAT(groups[1].shifts, ElementsAre(-7));
  EXPECT_EQ(groups[2].first_row, 4);
  EXPECT_EQ(groups[2].runs, 5);
  EXPECT_THAT(groups[2].shifts, ElementsAre(-9, -2));
  EXPECT_EQ(ShiftedQueriesOf(chunk), 0 + 3 + 2);
}

}  // namespace
}  // namespace baton
