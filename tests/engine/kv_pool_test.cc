#include "engine/kv_pool.h"

#include <gtest/gtest.h>

#include <cstring>

#include "engine/model_loader.h"
#include "tests/engine/tiny_engine.h"

namespace baton {
namespace {

// Refuses shared memory, and leaves the rest to another device.
class UnsharedDevice : public Device {
 public:
  explicit UnsharedDevice(Device* device) : device_(device) {}
  std::string Description() const override { return device_->Description(); }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(size_t bytes,
                                                         std::string_view purpose) override {
    return device_->Allocate(bytes, purpose);
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateShared(size_t, std::string_view) override {
    return absl::ResourceExhaustedError("no memfd here");
  }
  size_t allocated_bytes() const override { return device_->allocated_bytes(); }
  std::unique_ptr<Stream> CreateStream() override { return device_->CreateStream(); }
  const Ops& ops() const override { return device_->ops(); }

 private:
  Device* const device_;
};

class KvPoolTest : public ::testing::Test {
 protected:
  EngineOptions options_ = TinyOptions();
  LoadedModel model_ = *LoadModel(options_);
};

TEST_F(KvPoolTest, HasAScratchBlockBehindThoseOfTheCache) {
  const auto pool = KvPool::Create(model_.info.spec, *model_.device, options_);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(pool->layout().group(0).num_blocks(), 101);
  EXPECT_EQ(pool->lender().AddressForCopyEngine(), pool->kernel_address());
  EXPECT_EQ(pool->lender().layout().num_blocks(), 101);
  EXPECT_EQ(pool->lender().memory(), PoolMemory::kHost);
  EXPECT_FALSE(pool->lender().exported().has_value());
}

TEST_F(KvPoolTest, ItsSizeInMiBSettlesTheBlocks) {
  options_.kv_blocks = 0;
  options_.kv_cache_mib = 3;
  const auto pool = KvPool::Create(model_.info.spec, *model_.device, options_);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(options_.kv_blocks, (3 << 20) / pool->layout().bytes_per_block());
}

TEST_F(KvPoolTest, MoreThanTheHostHasIsRefusedWithBothNumbers) {
  options_.kv_blocks = 1 << 29;  // terabytes
  for (const bool shm : {false, true}) {
    options_.transfer_shm = shm;
    const auto pool = KvPool::Create(model_.info.spec, *model_.device, options_);
    EXPECT_EQ(pool.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_NE(pool.status().message().find("536870913 blocks of KV need "), std::string::npos)
        << pool.status();
    EXPECT_NE(pool.status().message().find("MiB, the device has "), std::string::npos);
  }
}

// A device whose memory a control group limits, say.
class SmallDevice final : public UnsharedDevice {
 public:
  using UnsharedDevice::UnsharedDevice;
  DeviceMemory Memory() const override { return {.total = 8 << 20, .available = 4 << 20}; }
};

TEST_F(KvPoolTest, TheDeviceSaysHowMuchMemoryThereIs) {
  SmallDevice device(model_.device.get());
  options_.kv_blocks = 0;
  options_.kv_cache_mib = 5;
  EXPECT_EQ(KvPool::Create(model_.info.spec, device, options_).status().code(),
            absl::StatusCode::kResourceExhausted);
  options_.kv_blocks = 0;  // Create settled it
  options_.kv_cache_mib = 3;
  EXPECT_TRUE(KvPool::Create(model_.info.spec, device, options_).ok());
  options_.kv_blocks = 0;
  options_.kv_cache_max_mib = 9;
  const absl::Status status = KvPool::Create(model_.info.spec, device, options_).status();
  EXPECT_EQ(status,
            absl::InvalidArgumentError("kv-cache-max-mib is 9, the device has 8 MiB of memory"));
}

TEST_F(KvPoolTest, MemoryIsThereOnceItIsWritten) {
  options_.kv_blocks = 4000;
  const auto pool = KvPool::Create(model_.info.spec, *model_.device, options_);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const int64_t before = pool->ResidentBytes();
  EXPECT_LT(before, pool->layout().pool_bytes());
  std::memset(pool->kernel_address(), 1, pool->layout().pool_bytes());
  EXPECT_GE(pool->ResidentBytes(), pool->layout().pool_bytes());
}

TEST_F(KvPoolTest, LiesInAFileForPeersOnThisHost) {
  options_.transfer_shm = true;
  const auto pool = KvPool::Create(model_.info.spec, *model_.device, options_);
  ASSERT_TRUE(pool.ok()) << pool.status();
  ASSERT_TRUE(pool->lender().exported().has_value());
  EXPECT_GE(pool->lender().exported()->file, 0);
}

TEST_F(KvPoolTest, WithoutSharedMemoryTcpIsEnoughWhereItWasAskedForToo) {
  UnsharedDevice device(model_.device.get());
  options_.transfer_shm = true;
  EXPECT_EQ(KvPool::Create(model_.info.spec, device, options_).status().code(),
            absl::StatusCode::kResourceExhausted);
  options_.transfer_listen = "127.0.0.1:0";
  const auto pool = KvPool::Create(model_.info.spec, device, options_);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_FALSE(options_.transfer_shm);
  EXPECT_FALSE(pool->lender().exported().has_value());
}

}  // namespace
}  // namespace baton
