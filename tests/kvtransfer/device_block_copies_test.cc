#include "kvtransfer/pool/device_block_copies.h"

#include <memory>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/transfer_pool.h"
#include "tests/kvtransfer/test_pool.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

using Direction = PoolCopies::Direction;

class DeviceBlockCopiesTest : public ::testing::TestWithParam<KvLayoutKind> {
 protected:
  DeviceBlockCopiesTest() {
    for (size_t i = 0; i < pool_.size(); ++i) {
      pool_.data()[i] = static_cast<std::byte>(i * 37 >> 3);
    }
  }

  DeviceBlockCopies& copies() { return *pool_.lender().block_copies(); }
  std::optional<DeviceBlockCopy> Begin(Direction direction, const GroupBlocks& blocks,
                                       int32_t tokens, std::shared_ptr<const void> keep = nullptr,
                                       LayerRange layers = {}) {
    return copies().Begin(direction, blocks, tokens, layers, outside_.data(), std::move(keep));
  }
  static absl::Status Wait(DeviceBlockCopy& copy) {
    for (;;) {
      const absl::StatusOr<bool> ready = copy.Ready();
      if (!ready.ok() || *ready) return ready.status();
    }
  }
  // The tokens of some blocks, piece behind piece.
  std::vector<std::byte> BytesOf(const GroupBlocks& blocks, int32_t tokens) {
    std::vector<std::byte> bytes;
    for (const iovec& run : pool_.Bytes(blocks, tokens).Runs()) {
      const auto* const at = static_cast<const std::byte*>(run.iov_base);
      bytes.insert(bytes.end(), at, at + run.iov_len);
    }
    return bytes;
  }
  std::vector<std::byte> Outside(size_t bytes) const {
    return {outside_.begin(), outside_.begin() + static_cast<std::ptrdiff_t>(bytes)};
  }

  const KvPoolLayout layout_ = MakeLayout({.layout = GetParam(), .groups = "wfv"});
  // Outlives the pool, which ends its copies in its destructor.
  std::vector<std::byte> outside_ =
      std::vector<std::byte>(static_cast<size_t>(layout_.bytes_per_block()), std::byte{0x11});
  TestPool pool_{layout_, PoolMemory::kDevice, {.read_buffers = 1, .land_buffers = 1}};
};

INSTANTIATE_TEST_SUITE_P(Layouts, DeviceBlockCopiesTest,
                         ::testing::Values(KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor));

// A block of full attention, with and without a window's block.
TEST_P(DeviceBlockCopiesTest, PiecesGoOutAndInWithTheirChecksums) {
  for (const bool window : {false, true}) {
    for (const int32_t tokens : {1, 5, 16}) {
      GroupBlocks from(BlockId(9)), to(BlockId(20));
      if (window) from.Set(1, BlockId(4)), to.Set(1, BlockId(7));
      const std::vector<std::byte> bytes = BytesOf(from, tokens);
      std::optional<DeviceBlockCopy> out = Begin(Direction::kFromPool, from, tokens);
      ASSERT_TRUE(Wait(*out).ok());
      EXPECT_EQ(Outside(bytes.size()), bytes);
      EXPECT_THAT(out->checksums(),
                  ::testing::ElementsAreArray(pool_.Bytes(from, tokens).Checksums()));
      ASSERT_NE(BytesOf(to, tokens), bytes);
      std::optional<DeviceBlockCopy> in = Begin(Direction::kToPool, to, tokens);
      ASSERT_TRUE(Wait(*in).ok());
      EXPECT_EQ(BytesOf(to, tokens), bytes);
      EXPECT_THAT(in->checksums(), ::testing::ElementsAreArray(out->checksums()));
    }
  }
  EXPECT_EQ(pool_.lender().BytesThroughHost(), 0);
}

// Layers 0 and 2 are windows, layer 1 has full attention.
TEST_P(DeviceBlockCopiesTest, LayersGoOutAndInAlone) {
  const BlockId from(9), to(20);
  std::optional<DeviceBlockCopy> out =
      Begin(Direction::kFromPool, from, 5, nullptr, {.first = 1, .count = 1});
  ASSERT_TRUE(Wait(*out).ok());
  EXPECT_THAT(out->checksums(), ::testing::ElementsAreArray(
                                    pool_.Bytes(from, 5, {.first = 1, .count = 1}).Checksums()));
  std::optional<DeviceBlockCopy> in =
      Begin(Direction::kToPool, to, 5, nullptr, {.first = 1, .count = 1});
  ASSERT_TRUE(Wait(*in).ok());
  EXPECT_EQ(BytesOf(to, 5), BytesOf(from, 5));
  const int64_t copies = pool_.copies().begun_on_device;
  std::optional<DeviceBlockCopy> none =
      Begin(Direction::kFromPool, from, 5, nullptr, {.first = 2, .count = 1});
  EXPECT_TRUE(*none->Ready());
  EXPECT_TRUE(none->checksums().empty());
  EXPECT_EQ(pool_.copies().begun_on_device, copies);
}

TEST_P(DeviceBlockCopiesTest, APoolSettlesWhenTheCopiesOfEndedTransfersHaveEnded) {
  pool_.copies().held = true;
  std::optional<DeviceBlockCopy> live = Begin(Direction::kFromPool, BlockId(1), 16);
  EXPECT_TRUE(pool_.lender().Settled());
  std::optional<DeviceBlockCopy> abandoned = Begin(Direction::kToPool, BlockId(2), 16);
  abandoned->Abandon();
  EXPECT_FALSE(pool_.lender().Settled());
  pool_.copies().held = false;
  pool_.copies().LetEnd();
  EXPECT_TRUE(pool_.lender().Settled());
  EXPECT_TRUE(*abandoned->Ready());

  pool_.copies().held = true;
  std::optional<DeviceBlockCopy> released = Begin(Direction::kFromPool, BlockId(3), 16);
  released.reset();
  EXPECT_FALSE(pool_.lender().Settled());
  pool_.copies().held = false;
  pool_.copies().LetEnd();
  EXPECT_TRUE(pool_.lender().Settled());
  EXPECT_TRUE(*live->Ready());
}

TEST_P(DeviceBlockCopiesTest, ARunningCopyKeepsItsMemory) {
  const auto memory = std::make_shared<int>(1);
  pool_.copies().held = true;
  std::optional<DeviceBlockCopy> copy = Begin(Direction::kFromPool, BlockId(1), 16, memory);
  copy.reset();
  EXPECT_FALSE(pool_.lender().Settled());
  EXPECT_EQ(memory.use_count(), 2);
  pool_.copies().held = false;
  pool_.copies().LetEnd();
  EXPECT_TRUE(pool_.lender().Settled());
  EXPECT_EQ(memory.use_count(), 1);
}

TEST_P(DeviceBlockCopiesTest, TheNumberOfCopiesIsLimited) {
  std::vector<DeviceBlockCopy> all;
  while (copies().HasRoom()) all.push_back(*Begin(Direction::kFromPool, BlockId(1), 16));
  EXPECT_EQ(static_cast<int32_t>(all.size()), DeviceBlockCopies::CopiesFor(layout_));
  EXPECT_FALSE(Begin(Direction::kFromPool, BlockId(1), 16).has_value());
  pool_.copies().held = true;
  all.pop_back();  // it may still run
  EXPECT_FALSE(copies().HasRoom());
  pool_.copies().held = false;
  pool_.copies().LetEnd();
  EXPECT_TRUE(copies().HasRoom());
}

TEST_P(DeviceBlockCopiesTest, AFailedCopyIsReportedByItsOwnerOrByThePool) {
  pool_.copies().begin_result = absl::InternalError("the device failed");
  std::optional<DeviceBlockCopy> refused = Begin(Direction::kToPool, BlockId(1), 16);
  EXPECT_EQ(Wait(*refused), absl::InternalError("the device failed"));
  refused.reset();
  EXPECT_TRUE(pool_.lender().TakeStoreError().ok());
  pool_.copies().begin_result = absl::OkStatus();
  pool_.copies().end_result = absl::InternalError("the copy failed");
  for (const Direction direction : {Direction::kFromPool, Direction::kToPool}) {
    std::optional<DeviceBlockCopy> lost = Begin(direction, BlockId(1), 16);
    lost.reset();
    pool_.copies().LetEnd();
    EXPECT_TRUE(pool_.lender().Settled());
    EXPECT_EQ(pool_.lender().TakeStoreError(), direction == Direction::kToPool
                                                   ? absl::InternalError("the copy failed")
                                                   : absl::OkStatus());
  }
}

TEST(DeviceBlockCopies, ManyPiecesLeaveFewerCopies) {
  EXPECT_EQ(DeviceBlockCopies::CopiesFor(MakeLayout({.layers = 2})),
            DeviceBlockCopies::kMostCopies);
  EXPECT_EQ(DeviceBlockCopies::CopiesFor(MakeLayout({.layers = 100})),
            DeviceBlockCopies::kMostRuns / 200);
}

}  // namespace
}  // namespace baton
