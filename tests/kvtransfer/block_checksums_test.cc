#include "kvtransfer/pool/block_checksums.h"

#include "gtest/gtest.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

class BlockChecksumsTest : public ::testing::Test {
 protected:
  BlockChecksumsTest() { std::memset(pool_.data(), 1, pool_.size()); }

  void Change(int32_t block) { pool_.data()[layout_.PieceOffset(1, false, block)] ^= std::byte{1}; }
  // Whether what is given are the checksums of the block as it is now.
  bool Fresh(int32_t block, int32_t valid = 16) {
    const PieceBytes bytes = pool_.Bytes(BlockId(block), valid);
    return checksums_.Of(BlockId(block), valid, {}, bytes) == bytes.Checksums();
  }

  const KvLayout layout_ = MakeLayout({});
  TestPool pool_{layout_, PoolMemory::kHost};
  BlockChecksums checksums_{layout_};
};

TEST_F(BlockChecksumsTest, AreTakenAnewEachTimeForABlockThatWasNotReported) {
  EXPECT_TRUE(Fresh(3));
  Change(3);
  EXPECT_TRUE(Fresh(3));
}

TEST_F(BlockChecksumsTest, AreTakenOnceForAFullBlockUntilItIsReportedAgain) {
  checksums_.OnWritten(MakeBlocks(3, 1), {});
  EXPECT_TRUE(Fresh(3));
  Change(3);
  EXPECT_FALSE(Fresh(3));    // kept
  EXPECT_TRUE(Fresh(3, 7));  // of fewer tokens nothing is kept
  checksums_.OnWritten(MakeBlocks(3, 1), {});
  EXPECT_TRUE(Fresh(3));
  Change(3);
  checksums_.OnWritten({}, MakeBlocks(3, 1));
  EXPECT_TRUE(Fresh(3));
  Change(3);
  EXPECT_TRUE(Fresh(3));  // part-full: not kept
}

TEST_F(BlockChecksumsTest, AreForgottenWhenSomethingLands) {
  checksums_.OnWritten(MakeBlocks(3, 2), {});
  EXPECT_TRUE(Fresh(3));
  checksums_.Forget(MakeBlocks(3, 1));
  Change(3);
  EXPECT_TRUE(Fresh(3));
  EXPECT_TRUE(Fresh(4));
}

TEST_F(BlockChecksumsTest, BlocksOutsideThePoolAreIgnored) {
  checksums_.OnWritten(MakeBlocks(-1, 1), {});
  checksums_.OnWritten(MakeBlocks(64, 1), MakeBlocks(65, 1));
  EXPECT_TRUE(Fresh(63));
}

}  // namespace
}  // namespace baton
