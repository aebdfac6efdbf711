#include "kvtransfer/pool/block_checksums.h"

#include "gtest/gtest.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

class BlockChecksumsTest : public ::testing::Test {
 protected:
  BlockChecksumsTest() { std::memset(pool_.data(), 1, pool_.size()); }

  void Change(int32_t block) { pool_.data()[layout_.PieceOffset(1, false, block)] ^= std::byte{1}; }
  // Returns true if the returned checksums match the block's current bytes.
  bool Fresh(int32_t block, int32_t valid = 16) {
    const PieceBytes bytes = pool_.Bytes(BlockId(block), valid);
    return checksums_.Of(BlockId(block), valid, {}, bytes) == bytes.Checksums();
  }

  const KvPoolLayout layout_ = MakeLayout({});
  TestPool pool_{layout_, PoolMemory::kHost};
  BlockChecksums checksums_{layout_};
};

TEST_F(BlockChecksumsTest, AreRecomputedEachTimeForAnUnreportedBlock) {
  EXPECT_TRUE(Fresh(3));
  Change(3);
  EXPECT_TRUE(Fresh(3));
}

TEST_F(BlockChecksumsTest, AreComputedOnceForAFullBlockUntilItIsReportedAgain) {
  checksums_.OnWritten(MakeBlocks(3, 1), {});
  EXPECT_TRUE(Fresh(3));
  Change(3);
  EXPECT_FALSE(Fresh(3));    // kept
  EXPECT_TRUE(Fresh(3, 7));  // nothing is kept for fewer tokens
  checksums_.OnWritten(MakeBlocks(3, 1), {});
  EXPECT_TRUE(Fresh(3));
  Change(3);
  checksums_.OnWritten({}, MakeBlocks(3, 1));
  EXPECT_TRUE(Fresh(3));
  Change(3);
  EXPECT_TRUE(Fresh(3));  // partly full: not kept
}

// As Fresh, with checksums that a device has computed.
TEST_F(BlockChecksumsTest, OfADeviceAreKeptLikeThoseOfTheHost) {
  const auto fresh = [&](int32_t valid = 16) {
    const std::vector<uint32_t> now = pool_.Bytes(BlockId(3), valid).Checksums();
    return checksums_.Of(BlockId(3), valid, {}, now) == now;
  };
  EXPECT_TRUE(fresh());
  Change(3);
  EXPECT_TRUE(fresh());  // not reported
  checksums_.OnWritten(MakeBlocks(3, 1), {});
  EXPECT_TRUE(fresh());
  Change(3);
  EXPECT_FALSE(fresh());
  EXPECT_FALSE(Fresh(3));  // the host uses the same ones
  EXPECT_TRUE(fresh(7));
  checksums_.OnWritten(MakeBlocks(3, 1), {});
  EXPECT_TRUE(Fresh(3));
  Change(3);
  EXPECT_FALSE(fresh());
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

// When the window's block changes, the full block's checksums stay, and vice versa.
TEST(BlockChecksumsOfGroups, AreKeptForEachGroupApart) {
  const KvPoolLayout layout = MakeLayout({.groups = "wfw"});
  TestPool pool(layout, PoolMemory::kHost);
  std::memset(pool.data(), 1, pool.size());
  BlockChecksums checksums(layout);
  GroupBlocks both(BlockId(3));
  both.Set(1, BlockId(3));
  const auto change = [&](int32_t layer) {
    pool.data()[layout.PieceOffset(layer, 0, 3)] ^= std::byte{1};
  };
  const auto stale = [&](const GroupBlocks& blocks) {
    const PieceBytes bytes = pool.Bytes(blocks, 16);
    const std::vector<uint32_t> given = checksums.Of(blocks, 16, {}, bytes);
    const std::vector<uint32_t> now = bytes.Checksums();
    EXPECT_EQ(given.size(), now.size());
    std::vector<size_t> differ;
    for (size_t i = 0; i < now.size(); ++i) {
      if (given[i] != now[i]) differ.push_back(i);
    }
    return differ;
  };
  using Pieces = std::vector<size_t>;
  checksums.OnWritten(MakeBlocks(3, 1), {});
  EXPECT_EQ(stale(both), Pieces{});
  change(0), change(1), change(2);
  EXPECT_EQ(stale(both), Pieces{2}) << "nothing is kept for the window";
  checksums.OnWritten(MakeBlocks(3, 1), {}, /*group=*/1);
  EXPECT_EQ(stale(both), Pieces{2});
  change(0), change(1), change(2);
  EXPECT_EQ(stale(both), (Pieces{0, 4}));
  EXPECT_EQ(stale(BlockId(3)), Pieces{});
  const BlockId window_row[] = {kNoBlock, BlockId(3)};
  checksums.Forget(window_row);
  EXPECT_EQ(stale(both), Pieces{});
  checksums.OnWritten(MakeBlocks(3, 1), MakeBlocks(40, 1), /*group=*/1);
  checksums.OnWritten(MakeBlocks(3, 1), {}, /*group=*/2);  // no such group
  checksums.OnWritten({}, MakeBlocks(3, 1));
  change(1);
  EXPECT_EQ(stale(both), Pieces{});
}

}  // namespace
}  // namespace baton
