// A pool whose KV heads are divided among ranks, behind staging buffers with whole rows. Copies run
// on the CPU's op (Ops::CopyRows).
#include "kvtransfer/pool/rank_runs.h"

#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/create_device.h"
#include "kvtransfer/pool/device_copies.h"
#include "kvtransfer/pool/staged_pool.h"

namespace baton {
namespace {

constexpr int32_t kRanks = 3;
constexpr int32_t kHeadDim = 4;
constexpr uint64_t kSeed = 23027;

KvCacheSpec Spec(KvType type, int32_t kv_heads) {
  KvGroupSpec full{.layers = 2, .kv_heads = kv_heads, .head_dim = kHeadDim, .type = type};
  KvGroupSpec window = full;
  window.kind = KvGroupKind::kSlidingWindow;
  window.window = 8;
  window.layers = 1;
  full.model_layers = {0, 2};
  window.model_layers = {1};
  return {.groups = {full, window}};
}

struct Case {
  KvLayoutKind kind;
  KvType type;
};

class RankRunsTest : public ::testing::TestWithParam<Case> {
 protected:
  static KvPoolLayout Layout(int32_t kv_heads) {
    const int64_t blocks[] = {5, 4};
    return *KvPoolLayout::Create(Spec(GetParam().type, kv_heads), GetParam().kind, 8, blocks);
  }

  RankRunsTest() {
    std::vector<DeviceCopies::Part> parts;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      devices_.push_back(*CreateDevice({.name = "cpu-async", .threads = 1}));
      pools_.push_back(*devices_[rank]->Allocate(rank_.pool_bytes(), "test"));
      parts.push_back({.device = devices_[rank].get(), .pool = pools_[rank]->data()});
    }
    copies_.emplace(parts, /*reach_first=*/true);
    EXPECT_TRUE(copies_->Prepare().ok());
    const StagedPool::Limits limits{.read_buffers = 1, .land_buffers = 1};
    staging_.assign(static_cast<size_t>(StagedPool::StagingBytes(whole_, limits)), std::byte{0xEE});
    lender_.emplace(rank_, whole_, *copies_, staging_, limits);
  }

  // Calls copy(byte of the whole pool, rank, byte of the rank's pool, bytes) for every head.
  template <typename Copy>
  void ForEachHead(const Copy& copy) const {
    const int64_t element = KvTypeBytes(GetParam().type);
    const int64_t head_bytes = kHeadDim * element;
    for (int32_t layer = 0; layer < whole_.layers(); ++layer) {
      const KvLayout& group = whole_.layout_of(layer);
      for (int32_t plane = 0; plane < 2; ++plane) {
        for (int64_t block = 0; block < group.num_blocks(); ++block) {
          for (int64_t token = 0; token < 8; ++token) {
            const int64_t row =
                whole_.PieceOffset(layer, plane, block) + token * group.token_stride() * element;
            const int64_t own = rank_.PieceOffset(layer, plane, block) +
                                token * rank_.layout_of(layer).token_stride() * element;
            for (int32_t head = 0; head < kRanks; ++head) {
              copy(row + head * head_bytes, head, own, head_bytes);
              if (!HasScales(GetParam().type)) continue;
              copy(row + kRanks * head_bytes + head * 4, head, own + head_bytes, 4);
            }
          }
        }
      }
    }
  }
  void WaitFor(PoolLease& lease) const {
    for (;;) {
      const absl::StatusOr<bool> ready = lease.Ready();
      ASSERT_TRUE(ready.ok()) << ready.status();
      if (*ready) return;
      std::this_thread::yield();
    }
  }

  const KvPoolLayout whole_ = Layout(kRanks);
  const KvPoolLayout rank_ = Layout(1);
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<DeviceBuffer>> pools_;
  std::optional<DeviceCopies> copies_;
  std::vector<std::byte> staging_;
  std::optional<StagedPool> lender_;
};

INSTANTIATE_TEST_SUITE_P(Layouts, RankRunsTest,
                         ::testing::Values(Case{KvLayoutKind::kBlockMajor, KvType::kF16},
                                           Case{KvLayoutKind::kLayerMajor, KvType::kF32},
                                           Case{KvLayoutKind::kBlockMajor, KvType::kInt8},
                                           Case{KvLayoutKind::kLayerMajor, KvType::kFp8}));

TEST_P(RankRunsTest, ALeaseHasTheRowsOfAllRanksAndZeroPadding) {
  std::mt19937_64 random(kSeed);
  std::vector<std::byte> pool(static_cast<size_t>(whole_.pool_bytes()));
  ForEachHead([&](int64_t at, int32_t rank, int64_t own, int64_t bytes) {
    for (int64_t i = 0; i < bytes; ++i) {
      pool[at + i] = pools_[rank]->data()[own + i] = static_cast<std::byte>(random());
    }
  });
  GroupBlocks both(BlockId(3));
  both.Set(1, BlockId(1));
  const LandingParts parts = {{.blocks = both, .block_token = 5, .tokens = 3},
                              {.blocks = BlockId(4), .payload_token = 3, .tokens = 6}};
  for (const LayerRange layers : {LayerRange{}, LayerRange{.first = 1, .count = 1}}) {
    std::optional<PoolLease> lease = lender_->Acquire(PoolAccess::kRead, parts, layers);
    ASSERT_TRUE(lease.has_value());
    WaitFor(*lease);
    const PieceBytes expected(pool.data(), whole_, parts, layers);
    EXPECT_EQ(lease->bytes().Checksums(), expected.Checksums());
  }
  EXPECT_EQ(lender_->AddressForCopyEngine(), nullptr);
}

// The first rank's device has memory for NCCL, and the others reach it.
TEST_P(RankRunsTest, BlocksGoToMemoryOfTheFirstRankAndBackWithTheChecksumsOfAWholePool) {
  std::mt19937_64 random(kSeed + 2);
  std::vector<std::byte> pool(static_cast<size_t>(whole_.pool_bytes()));
  ForEachHead([&](int64_t at, int32_t rank, int64_t own, int64_t bytes) {
    for (int64_t i = 0; i < bytes; ++i) {
      pool[at + i] = pools_[rank]->data()[own + i] = static_cast<std::byte>(random());
    }
  });
  const std::vector<std::byte> garbage(static_cast<size_t>(whole_.bytes_per_block()),
                                       std::byte{0x77});
  const auto memory = *devices_[0]->Allocate(garbage.size(), "staging of NCCL");
  GroupBlocks from(BlockId(3)), to(BlockId(2));
  from.Set(1, BlockId(1)), to.Set(1, BlockId(3));
  const auto wait = [](DeviceBlockCopy& copy) {
    absl::StatusOr<bool> ready = copy.Ready();
    for (; ready.ok() && !*ready; ready = copy.Ready()) std::this_thread::yield();
    ASSERT_TRUE(ready.ok()) << ready.status();
  };
  for (const int32_t tokens : {8, 5}) {
    for (const LayerRange layers : {LayerRange{}, LayerRange{.first = 1, .count = 2}}) {
      std::memcpy(memory->data(), garbage.data(), garbage.size());
      const PieceBytes expected(pool.data(), whole_, LeadingTokens(from, tokens), layers);
      DeviceBlockCopy out = *lender_->block_copies()->Begin(
          PoolCopies::Direction::kFromPool, from, tokens, layers, memory->data(), nullptr);
      wait(out);
      EXPECT_THAT(out.checksums(), ::testing::ElementsAreArray(expected.Checksums()));
      DeviceBlockCopy in = *lender_->block_copies()->Begin(PoolCopies::Direction::kToPool, to,
                                                           tokens, layers, memory->data(), nullptr);
      wait(in);
      EXPECT_THAT(in.checksums(), ::testing::ElementsAreArray(expected.Checksums()));
      const PieceBytes landed(pool.data(), whole_, LeadingTokens(to, tokens), layers);
      for (const Piece piece : expected.pieces()) {
        std::memcpy(landed.Part(piece, 0).data(), expected.Part(piece, 0).data(),
                    landed.Part(piece, 0).size());
      }
      ForEachHead([&](int64_t at, int32_t rank, int64_t own, int64_t bytes) {
        ASSERT_EQ(std::memcmp(pool.data() + at, pools_[rank]->data() + own, bytes), 0)
            << "rank " << rank << ", byte " << own;
      });
    }
  }
  EXPECT_EQ(lender_->BytesThroughHost(), 0);
}

TEST_P(RankRunsTest, StoredRowsReachEveryRankAndNothingElseChanges) {
  std::mt19937_64 random(kSeed + 1);
  std::vector<std::byte> pool(static_cast<size_t>(whole_.pool_bytes()));
  ForEachHead([&](int64_t at, int32_t rank, int64_t own, int64_t bytes) {
    for (int64_t i = 0; i < bytes; ++i) {
      pool[at + i] = pools_[rank]->data()[own + i] = static_cast<std::byte>(random());
    }
  });
  const LandingParts parts = {{.blocks = BlockId(2), .block_token = 1, .tokens = 7},
                              {.blocks = BlockId(0), .payload_token = 7, .tokens = 2}};
  const LayerRange layers{.first = 1, .count = 2};
  PoolLease lease = *lender_->Acquire(PoolAccess::kLand, parts, layers);
  WaitFor(lease);
  const PieceBytes target(pool.data(), whole_, parts, layers);
  for (const Piece piece : target.pieces()) {
    for (size_t part = 0; part < parts.size(); ++part) {
      const std::span<std::byte> landed = lease.bytes().Part(piece, part);
      ASSERT_EQ(landed.size(), target.Part(piece, part).size());
      for (std::byte& byte : landed) byte = static_cast<std::byte>(random());
      std::memcpy(target.Part(piece, part).data(), landed.data(), landed.size());
    }
  }
  lease.Store();
  WaitFor(lease);
  ForEachHead([&](int64_t at, int32_t rank, int64_t own, int64_t bytes) {
    ASSERT_EQ(std::memcmp(pool.data() + at, pools_[rank]->data() + own, bytes), 0)
        << "rank " << rank << ", byte " << own;
  });
}

}  // namespace
}  // namespace baton
