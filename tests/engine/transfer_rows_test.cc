#include "engine/transfer_rows.h"

#include <gtest/gtest.h>

#include "common/clock.h"

namespace baton {
namespace {

class TransferRowsTest : public testing::Test {
 protected:
  TransferRowsTest() {
    // 22 tokens arrive by transfer, in blocks 0 to 5.
    EXPECT_TRUE(cache_.Begin(kId, CacheNamespace(0), std::vector<CacheUnit>(22, 7), 22).ok());
    EXPECT_TRUE(cache_.ReserveForImport(kId, 22).ok());
  }
  ~TransferRowsTest() override { cache_.Release(kId, /*keep=*/false); }
  MovedTokens Moved(int32_t first_block) const {
    return MovedTokens(first_block, WindowFirstBlocks(cache_, first_block, 22), 22, 4,
                       WindowSizes(cache_));
  }

  static constexpr SequenceId kId = SequenceId(1);
  ManualClock clock_;
  KvCacheManager cache_{
      {.num_blocks = 20,
       .block_size = 4,
       .windows = {{.window = 5, .num_blocks = 10}, {.window = 10, .num_blocks = 10}}},
      &clock_};
};

TEST_F(TransferRowsTest, AReceiverLacksTheWindowBlocksThatTheNextTokenSees) {
  EXPECT_EQ(WindowSizes(cache_), (std::vector<int32_t>{5, 10}));
  EXPECT_EQ(WindowFirstBlocks(cache_, 0, 22), (std::vector<int32_t>{4, 3}))
      << "from slot 18, from slot 13";
  EXPECT_EQ(WindowFirstBlocks(cache_, 5, 22), (std::vector<int32_t>{5, 5}));
  EXPECT_EQ(WindowFirstBlocks(cache_, 0, 3), (std::vector<int32_t>{0, 0}));
}

TEST_F(TransferRowsTest, RowsHaveABlockWhereTheGroupTravels) {
  std::vector<BlockId> rows;
  AppendRows(cache_, kId, Moved(0), {.first = 2, .count = 2}, rows);
  AppendRows(cache_, kId, Moved(0), {.first = 4, .count = 2}, rows);
  const auto full = cache_.BlockTable(kId);
  const auto narrow = cache_.BlockTable(kId, 1);
  const auto wide = cache_.BlockTable(kId, 2);
  EXPECT_EQ(rows, (std::vector<BlockId>{full[2], kNoBlock, kNoBlock,  //
                                        full[3], kNoBlock, wide[3],   //
                                        full[4], narrow[4], wide[4],  //
                                        full[5], narrow[5], wide[5]}));
  EXPECT_EQ(CountBlocks(rows, 3)[0], 4);
  EXPECT_EQ(CountBlocks(rows, 3)[1], 2);
  EXPECT_EQ(CountBlocks(rows, 3)[2], 3);
}

TEST_F(TransferRowsTest, HoldsAreOfEachGroup) {
  std::vector<BlockId> rows;
  AppendRows(cache_, kId, Moved(0), {.first = 0, .count = 6}, rows);
  HoldRows(cache_, rows);
  for (int32_t group = 0; group < 3; ++group) {
    std::vector<BlockId> held;
    AppendGroup(rows, 3, group, held);
    EXPECT_TRUE(cache_.CheckTransferHolds(held, group).ok());
    held.pop_back();
    EXPECT_FALSE(cache_.CheckTransferHolds(held, group).ok());
  }
  ReleaseRows(cache_, rows);
  for (int32_t group = 0; group < 3; ++group) {
    EXPECT_TRUE(cache_.CheckTransferHolds({}, group).ok());
  }
}

TransferTicket Ticket(int32_t block_size) {
  TransferTicket ticket;
  ticket.block_size = block_size;
  return ticket;
}

TEST_F(TransferRowsTest, WindowsGoToBlocksOfAtMostTheSameSize) {
  EXPECT_TRUE(CheckWindowsLandWhole(cache_, Ticket(4)).ok());
  EXPECT_TRUE(CheckWindowsLandWhole(cache_, Ticket(0)).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckWindowsLandWhole(cache_, Ticket(8))));
  const KvCacheManager one_group({.num_blocks = 4, .block_size = 4}, &clock_);
  EXPECT_TRUE(CheckWindowsLandWhole(one_group, Ticket(8)).ok());
}

using TransferRowsDeathTest = TransferRowsTest;

TEST_F(TransferRowsDeathTest, AMissingBlockThatMustMoveIsABug) {
  const std::vector<int32_t> first = {0, 0};
  const std::vector<int32_t> windows = {22, 22};  // larger than the cache's
  const MovedTokens moved(0, first, 22, 4, windows);
  std::vector<BlockId> rows;
  EXPECT_DEATH(AppendRows(cache_, kId, moved, {.first = 0, .count = 6}, rows),
               "KV group 1: block 0 must move but does not exist");
}

}  // namespace
}  // namespace baton
