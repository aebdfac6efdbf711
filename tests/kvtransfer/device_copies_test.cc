#include "kvtransfer/pool/device_copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <span>
#include <thread>

#include "common/crc32c.h"
#include "kernels/create_device.h"

namespace baton {
namespace {

using ::testing::Each;
using PoolRun = PoolCopies::Run;

class DeviceCopiesTest : public testing::Test {
 protected:
  absl::StatusOr<bool> Wait(uint64_t copy) {
    for (;;) {
      absl::StatusOr<bool> ended = copies_.Ended(copy);
      if (!ended.ok() || *ended) return ended;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  const std::unique_ptr<Device> device_ = *CreateDevice({.name = "cpu-async", .threads = 1});
  const std::unique_ptr<DeviceBuffer> pool_ = *device_->Allocate(1000, "test");
  const std::unique_ptr<DeviceBuffer> staging_ = *device_->AllocateStaging(1000, "test");
  DeviceCopies copies_{*device_, pool_->data()};
};

TEST_F(DeviceCopiesTest, RunsAreCopiedInBothDirections) {
  std::memset(pool_->data(), 1, 1000);
  std::memset(staging_->data(), 0, 1000);
  const PoolRun runs[] = {{.pool_offset = 10, .staging = staging_->data() + 100, .bytes = 20},
                          {.pool_offset = 500, .staging = staging_->data() + 120, .bytes = 30}};
  const auto out = copies_.Begin(PoolCopies::Direction::kFromPool, runs);
  ASSERT_TRUE(out.ok()) << out.status();
  ASSERT_TRUE(Wait(*out).ok());
  const auto* const staged = staging_->as<uint8_t>();
  EXPECT_THAT(std::vector(staged + 100, staged + 150), Each(1));
  EXPECT_EQ(staged[99], 0);
  EXPECT_EQ(staged[150], 0);

  std::memset(staging_->data() + 100, 7, 50);
  const auto in = copies_.Begin(PoolCopies::Direction::kToPool, runs);
  ASSERT_TRUE(in.ok()) << in.status();
  ASSERT_TRUE(Wait(*in).ok());
  const auto* const pool = pool_->as<uint8_t>();
  EXPECT_THAT(std::vector(pool + 10, pool + 30), Each(7));
  EXPECT_THAT(std::vector(pool + 500, pool + 530), Each(7));
  EXPECT_EQ(pool[30], 1);
}

TEST_F(DeviceCopiesTest, CopiesOnTheDeviceHaveChecksums) {
  for (int i = 0; i < 1000; ++i) pool_->as<uint8_t>()[i] = static_cast<uint8_t>(i * 7);
  const auto outside = *device_->Allocate(1000, "test");
  const PoolRun runs[] = {{.pool_offset = 10, .staging = outside->data() + 100, .bytes = 20},
                          {.pool_offset = 500, .staging = outside->data() + 120, .bytes = 30}};
  ASSERT_TRUE(copies_.Prepare().ok());
  uint32_t checksums[2] = {};
  ASSERT_TRUE(Wait(*copies_.BeginOnDevice(PoolCopies::Direction::kFromPool, runs, checksums)).ok());
  for (int i = 0; i < 2; ++i) {
    const auto bytes = static_cast<size_t>(runs[i].bytes);
    EXPECT_EQ(std::memcmp(runs[i].staging, pool_->data() + runs[i].pool_offset, bytes), 0);
    EXPECT_EQ(checksums[i], Crc32c(std::span(runs[i].staging, bytes)));
  }
  std::memset(outside->data(), 9, 1000);
  ASSERT_TRUE(Wait(*copies_.BeginOnDevice(PoolCopies::Direction::kToPool, runs, checksums)).ok());
  const auto* const pool = pool_->as<uint8_t>();
  EXPECT_THAT(std::vector(pool + 500, pool + 530), Each(9));
  EXPECT_EQ(checksums[0], Crc32c(std::span(outside->data(), 20)));
}

TEST_F(DeviceCopiesTest, CopiesHaveTheirOwnIdsAndMayBeAskedInAnyOrder) {
  const PoolRun run{.pool_offset = 0, .staging = staging_->data(), .bytes = 1000};
  std::vector<uint64_t> ids;
  for (int i = 0; i < 5; ++i) {
    ids.push_back(*copies_.Begin(PoolCopies::Direction::kToPool, {&run, 1}));
  }
  for (auto id = ids.rbegin(); id != ids.rend(); ++id) EXPECT_TRUE(Wait(*id).ok());
  EXPECT_NE(ids[0], ids[1]);
}

}  // namespace
}  // namespace baton
