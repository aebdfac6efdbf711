#include "kvtransfer/pool/kv_packer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <vector>

#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

// Pools of the host and of a device, in both layouts, without and with compression.
using Case = std::tuple<PoolMemory, KvLayoutKind, bool>;

class KvPackerTest : public ::testing::TestWithParam<Case> {
 protected:
  KvPackerTest() {
    // The upper byte of each number is the same, so that compression has something to find.
    for (size_t i = 0; i < pool_.size(); ++i) {
      pool_.data()[i] = static_cast<std::byte>(i % 2 == 0 ? i * 7919 >> 5 : 0x3C);
    }
  }
  bool compresses() const { return std::get<2>(GetParam()); }
  std::vector<std::byte> Contents() const { return {pool_.data(), pool_.data() + pool_.size()}; }
  std::vector<std::byte> Tokens(int32_t block, int32_t tokens) const {
    std::vector<std::byte> bytes;
    for (const iovec& run : pool_.Bytes(BlockId(block), tokens).Runs()) {
      const auto* const at = static_cast<const std::byte*>(run.iov_base);
      bytes.insert(bytes.end(), at, at + run.iov_len);
    }
    return bytes;
  }
  PackedBlock Pack(int32_t block, int32_t tokens) {
    absl::StatusOr<PackedBlock> packed = packer_.Pack(BlockId(block), tokens);
    EXPECT_TRUE(packed.ok()) << packed.status();
    return *std::move(packed);
  }

  const KvPoolLayout layout_ = MakeLayout({.layout = std::get<1>(GetParam())});
  TestPool pool_{layout_, std::get<0>(GetParam())};
  KvPacker packer_{&pool_.lender(), std::get<2>(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(
    Pools, KvPackerTest,
    ::testing::Combine(::testing::Values(PoolMemory::kHost, PoolMemory::kDevice),
                       ::testing::Values(KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor),
                       ::testing::Bool()));

TEST_P(KvPackerTest, ABlockComesBackIntoAnotherBlockAndNothingElseChanges) {
  for (const int32_t tokens : {1, 5, 16}) {
    const PackedBlock packed = Pack(7, tokens);
    EXPECT_EQ(packed.compressed, compresses());
    if (packed.compressed) {
      EXPECT_LT(packed.bytes.size(), Tokens(7, tokens).size());
    } else {
      EXPECT_EQ(packed.bytes, Tokens(7, tokens));
    }
    const std::vector<std::byte> wanted = Tokens(7, tokens);
    std::vector<std::byte> before = Contents();
    ASSERT_TRUE(packer_.Unpack(packed, BlockId(3), tokens).ok());
    EXPECT_EQ(Tokens(3, tokens), wanted);
    // Put the old tokens back, to compare the rest.
    std::vector<std::byte> after = Contents();
    const PieceBytes place = pool_.Bytes(BlockId(3), tokens);
    for (const iovec& run : place.Runs()) {
      const auto offset = static_cast<std::byte*>(run.iov_base) - pool_.data();
      std::fill_n(before.begin() + offset, run.iov_len, std::byte{0});
      std::fill_n(after.begin() + offset, run.iov_len, std::byte{0});
    }
    EXPECT_EQ(after, before);
  }
}

// Damage of a few bits of a compressed frame's header has no effect: the bytes are still the same.
TEST_P(KvPackerTest, DamageIsFoundBeforeThePoolIsWritten) {
  const PackedBlock packed = Pack(7, 16);
  ASSERT_TRUE(packer_.Unpack(packed, BlockId(3), 16).ok());
  int found = 0;
  int undamaged = 0;
  const std::vector<std::byte> before = Contents();
  for (size_t at = 0; at < packed.bytes.size(); at += 1 + packed.bytes.size() / 50) {
    PackedBlock damaged = packed;
    damaged.bytes[at] ^= std::byte{0x10};
    const absl::Status status = packer_.Unpack(damaged, BlockId(3), 16);
    ++(status.ok() ? undamaged : found);
    EXPECT_TRUE(status.ok() || absl::IsDataLoss(status)) << status;
  }
  EXPECT_GE(found, 40);
  EXPECT_LE(undamaged, compresses() ? 2 : 0);
  PackedBlock shorter = packed;
  shorter.bytes.pop_back();
  EXPECT_EQ(packer_.Unpack(shorter, BlockId(3), 16).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(packer_.Unpack(packed, BlockId(3), 15).code(), absl::StatusCode::kDataLoss)
      << "other tokens";
  EXPECT_TRUE(Contents() == before);
}

TEST_P(KvPackerTest, AFailedCopyOfADeviceIsReported) {
  if (std::get<0>(GetParam()) == PoolMemory::kHost) return;
  const PackedBlock packed = Pack(7, 16);
  pool_.copies().end_result = absl::InternalError("broken device");
  EXPECT_EQ(packer_.Pack(BlockId(7), 16).status().message(), "broken device");
  EXPECT_EQ(packer_.Unpack(packed, BlockId(3), 16).message(), "broken device");
}

}  // namespace
}  // namespace baton
