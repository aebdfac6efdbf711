// The copies of transfers (kvtransfer/pool/device_copies.h) on the CUDA backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "kvtransfer/pool/device_copies.h"
#include "kvtransfer/pool/staged_pool.h"
#include "tests/cuda/emulator_library.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

using PoolRun = PoolCopies::Run;
constexpr uint64_t kSeed = 16042;

// A driver's call blocks while its stream's queue is full. A layer-major pool has so many pieces
// that a copy of each would fill it.
TEST(DeviceCopiesOnCuda, BeginNeverMeetsAFullQueue) {
  constexpr int kBuffers = 8;     // as StagedPool::Limits
  constexpr int64_t kRuns = 300;  // pieces of a buffer
  constexpr int64_t kBytes = 48;  // of a piece
  constexpr int64_t kGap = 16;
  const EmulatorLibrary emulator;
  for (const int64_t runs : {int64_t{1}, int64_t{16}, int64_t{17}, kRuns}) {
    for (const auto direction :
         {PoolCopies::Direction::kFromPool, PoolCopies::Direction::kToPool}) {
      SCOPED_TRACE(testing::Message() << runs << " runs, direction " << int(direction));
      const auto device = CreateEmulatedDevice();
      const size_t pool_bytes = static_cast<size_t>(kBuffers * kRuns * (kBytes + kGap));
      const size_t staging_bytes = static_cast<size_t>(kBuffers * kRuns * kBytes);
      std::mt19937_64 random(kSeed);
      std::vector<uint8_t> expected_pool(pool_bytes);
      for (uint8_t& byte : expected_pool) byte = static_cast<uint8_t>(random());
      const auto pool = ToDevice<uint8_t>(*device, expected_pool);
      const auto staging = *device->AllocateStaging(staging_bytes, "test");
      for (size_t i = 0; i < staging_bytes; ++i) staging->as<uint8_t>()[i] = random() & 0xff;
      std::vector<uint8_t> expected_staging(staging->as<uint8_t>(),
                                            staging->as<uint8_t>() + staging_bytes);
      DeviceCopies copies(*device, pool->data());
      std::vector<uint64_t> ids;
      for (int64_t buffer = 0; buffer < kBuffers; ++buffer) {
        std::vector<PoolRun> list;
        for (int64_t i = 0; i < runs; ++i) {
          const int64_t piece = buffer * kRuns + i;
          list.push_back({.pool_offset = (kBuffers * kRuns - 1 - piece) * (kBytes + kGap),
                          .staging = staging->data() + piece * kBytes,
                          .bytes = kBytes});
          uint8_t* const in_pool = expected_pool.data() + list.back().pool_offset;
          uint8_t* const staged = expected_staging.data() + piece * kBytes;
          const bool out = direction == PoolCopies::Direction::kFromPool;
          std::memcpy(out ? staged : in_pool, out ? in_pool : staged, kBytes);
        }
        const auto begun = copies.Begin(direction, list);
        ASSERT_TRUE(begun.ok()) << begun.status();
        ids.push_back(*begun);
      }
      EXPECT_EQ(emulator.counters().full_queues, 0);
      for (const uint64_t id : ids) {
        for (auto ended = copies.Ended(id); !*ended; ended = copies.Ended(id)) {
          ASSERT_TRUE(ended.ok()) << ended.status();
          std::this_thread::yield();
        }
      }
      const auto stream = device->CreateStream();
      EXPECT_TRUE(FromDevice<uint8_t>(*stream, pool->data(), pool_bytes) == expected_pool);
      EXPECT_EQ(std::memcmp(staging->data(), expected_staging.data(), staging_bytes), 0);
    }
  }
}

// Gathers blocks of a layer-major pool into memory as of NCCL, and scatters them into other blocks.
TEST(DeviceCopiesOnCuda, BlocksMoveInsideTheDeviceWithTheChecksumsOfTheHost) {
  const EmulatorLibrary emulator;
  const auto device = CreateEmulatedDevice();
  const KvPoolLayout layout = MakeLayout({.layout = KvLayoutKind::kLayerMajor, .layers = 90});
  std::mt19937_64 random(kSeed + 1);
  std::vector<uint8_t> bytes(static_cast<size_t>(layout.pool_bytes()));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  const auto pool = ToDevice<uint8_t>(*device, bytes);
  const auto slot =
      *device->Allocate(3 * static_cast<size_t>(layout.bytes_per_block()), "staging of NCCL");
  DeviceCopies copies(*device, pool->data());
  const StagedPool::Limits limits{.read_buffers = 1, .land_buffers = 1};
  const auto staging =
      *device->AllocateStaging(static_cast<size_t>(StagedPool::StagingBytes(layout, limits)), "");
  StagedPool staged(pool->data(), layout, copies, std::span(staging->data(), staging->size()),
                    limits);
  ASSERT_TRUE(copies.Prepare().ok());
  const int64_t allocations = emulator.counters().allocations;
  const auto wait = [](DeviceBlockCopy& copy) {
    absl::StatusOr<bool> ready = copy.Ready();
    for (; ready.ok() && !*ready; ready = copy.Ready()) std::this_thread::yield();
    ASSERT_TRUE(ready.ok()) << ready.status();
  };
  const auto expected = [&](BlockId block, int32_t tokens) {
    return PieceBytes(reinterpret_cast<std::byte*>(bytes.data()), layout,
                      LeadingTokens(block, tokens), {});
  };
  std::vector<DeviceBlockCopy> gathers;
  const std::vector<int32_t> tokens = {16, 5, 1};
  for (size_t i = 0; i < tokens.size(); ++i) {
    gathers.push_back(*staged.block_copies()->Begin(
        PoolCopies::Direction::kFromPool, BlockId(static_cast<int32_t>(i)), tokens[i], LayerRange{},
        slot->data() + static_cast<int64_t>(i) * layout.bytes_per_block(), nullptr));
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    wait(gathers[i]);
    EXPECT_THAT(gathers[i].checksums(),
                testing::ElementsAreArray(
                    expected(BlockId(static_cast<int32_t>(i)), tokens[i]).Checksums()));
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    const BlockId from(static_cast<int32_t>(i)), to(static_cast<int32_t>(20 + i));
    DeviceBlockCopy scatter = *staged.block_copies()->Begin(
        PoolCopies::Direction::kToPool, to, tokens[i], LayerRange{},
        slot->data() + static_cast<int64_t>(i) * layout.bytes_per_block(), nullptr);
    wait(scatter);
    EXPECT_THAT(scatter.checksums(), testing::ElementsAreArray(gathers[i].checksums()));
    for (const Piece piece : expected(from, tokens[i]).pieces()) {
      std::ranges::copy(expected(from, tokens[i]).Part(piece, 0),
                        expected(to, tokens[i]).Part(piece, 0).begin());
    }
  }
  const auto stream = device->CreateStream();
  EXPECT_TRUE(FromDevice<uint8_t>(*stream, pool->data(), bytes.size()) == bytes);
  EXPECT_EQ(staged.BytesThroughHost(), 0);
  EXPECT_EQ(emulator.counters().allocations, allocations) << "a transfer allocated device memory";
}

// Three ranks with a KV head each. Leases of staging memory on the host are the reference.
TEST(DeviceCopiesOnCuda, RanksCopyBlocksToMemoryOfTheFirstGpuAndBack) {
  constexpr int32_t kRanks = 3;
  const EmulatorLibrary emulator;
  const DeviceGroup group = *CreateEmulatedGroup(kRanks);
  ASSERT_TRUE(group.reach_first);
  for (const KvType type : {KvType::kF16, KvType::kInt8}) {
    const auto layout_of = [&](int32_t kv_heads) {
      return KvPoolLayout(
          *KvLayout::Create({.layers = 3, .kv_heads = kv_heads, .head_dim = 24, .type = type},
                            KvLayoutKind::kLayerMajor, /*block_size=*/16, /*num_blocks=*/8));
    };
    const KvPoolLayout whole = layout_of(kRanks), rank = layout_of(1);
    std::mt19937_64 random(kSeed + 2);
    std::vector<std::unique_ptr<DeviceBuffer>> pools;
    std::vector<DeviceCopies::Part> parts;
    for (int32_t i = 0; i < kRanks; ++i) {
      std::vector<uint8_t> bytes(static_cast<size_t>(rank.pool_bytes()));
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
      pools.push_back(ToDevice<uint8_t>(*group.devices[i], bytes));
      parts.push_back({.device = group.devices[i].get(), .pool = pools.back()->data()});
    }
    DeviceCopies copies(parts, group.reach_first);
    ASSERT_TRUE(copies.Prepare().ok());
    const StagedPool::Limits limits{.read_buffers = 1, .land_buffers = 1};
    const auto staging = *group.devices[0]->AllocateStaging(
        static_cast<size_t>(StagedPool::StagingBytes(whole, limits)), "test");
    StagedPool staged(rank, whole, copies, std::span(staging->data(), staging->size()), limits);
    const auto slot = *group.devices[0]->Allocate(static_cast<size_t>(whole.bytes_per_block()),
                                                  "staging of NCCL");
    const auto wait = [](auto& copy) {
      absl::StatusOr<bool> ready = copy.Ready();
      for (; ready.ok() && !*ready; ready = copy.Ready()) std::this_thread::yield();
      ASSERT_TRUE(ready.ok()) << ready.status();
    };
    const auto by_host = [&](BlockId block, int32_t tokens) {
      PoolLease lease =
          *staged.Acquire(PoolAccess::kRead, LeadingTokens(block, tokens), LayerRange{});
      wait(lease);
      return lease.bytes().Checksums();
    };
    for (const int32_t tokens : {16, 5}) {
      const BlockId from(2), to(tokens == 16 ? 5 : 6);
      const std::vector<uint32_t> expected = by_host(from, tokens);
      EXPECT_NE(by_host(to, tokens), expected);
      const int64_t through_host = staged.BytesThroughHost();
      DeviceBlockCopy out = *staged.block_copies()->Begin(
          PoolCopies::Direction::kFromPool, from, tokens, LayerRange{}, slot->data(), nullptr);
      wait(out);
      EXPECT_THAT(out.checksums(), testing::ElementsAreArray(expected));
      DeviceBlockCopy in = *staged.block_copies()->Begin(PoolCopies::Direction::kToPool, to, tokens,
                                                         LayerRange{}, slot->data(), nullptr);
      wait(in);
      EXPECT_THAT(in.checksums(), testing::ElementsAreArray(expected));
      EXPECT_EQ(staged.BytesThroughHost(), through_host);
      EXPECT_EQ(by_host(to, tokens), expected);
    }
  }
}

}  // namespace
}  // namespace baton
