#include "kvtransfer/shm/lent_file.h"

#include "gtest/gtest.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

// A pool in a file, and slots of a pool that the host cannot read.
TEST(LentFile, NamesEveryGroupsBlockWithItsGeneration) {
  const KvPoolLayout layout = MakeLayout({.num_blocks = 8, .groups = "wfv", .window_blocks = 6});
  for (const PoolMemory memory : {PoolMemory::kHost, PoolMemory::kDevice}) {
    TestPool pool(layout, memory, {.read_buffers = 4, .land_buffers = 1}, /*shared=*/true);
    LentFile file = *LentFile::Create(pool.lender());
    EXPECT_EQ(file.layout().group(2).num_blocks(), memory == PoolMemory::kHost ? 6 : 4);
    GroupBlocks blocks(BlockId(1));
    blocks.Set(2, BlockId(3));  // nothing of group 1 travels
    file.EndLoan(file.NumberOf(BlockId(3), 2));
    SharedBlockFrame frame;
    file.SetPlaces(blocks, frame);
    EXPECT_EQ(frame.place, (SharedPlace{.pool_block = 1, .generation = 0}));
    ASSERT_EQ(frame.windows.size(), 1u);
    EXPECT_EQ(frame.windows[0], (SharedPlace{.pool_block = 3, .generation = 1}));
  }
}

TEST(LentFile, NeedsAPoolWithAnExport) {
  TestPool pool(MakeLayout({}), PoolMemory::kDevice);
  EXPECT_EQ(LentFile::Create(pool.lender()).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton
