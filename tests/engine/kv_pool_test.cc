#include "engine/kv_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "engine/model_loader.h"
#include "tests/cuda/emulator_library.h"
#include "tests/engine/tiny_engine.h"

namespace baton {
namespace {

// A device that refuses shared memory and forwards everything else to another device.
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
  EXPECT_EQ(pool->lender().layout().group(0).num_blocks(), 101);
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

TEST_F(KvPoolTest, APoolLargerThanTheHostsMemoryIsRefusedWithBothNumbers) {
  options_.kv_blocks = 1 << 29;  // terabytes
  for (const bool shm : {false, true}) {
    options_.transfer_shm = shm;
    const auto pool = KvPool::Create(model_.info.spec, *model_.device, options_);
    EXPECT_EQ(pool.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_NE(pool.status().message().find("536870913 blocks of KV need "), std::string::npos)
        << pool.status();
    EXPECT_NE(pool.status().message().find("MiB; the device has "), std::string::npos);
  }
}

// No request waits for pages of shared memory. Those of private memory come with their first use.
TEST_F(KvPoolTest, APoolInSharedMemoryHasAllItsPagesAtTheStart) {
  options_.kv_blocks = 0;
  options_.kv_cache_mib = 64;
  for (const bool shm : {false, true}) {
    options_.transfer_shm = shm;
    const auto pool = KvPool::Create(model_.info.spec, *model_.device, options_);
    ASSERT_TRUE(pool.ok()) << pool.status();
    ASSERT_EQ(pool->lender().exported().has_value(), shm);
    if (shm) {
      EXPECT_GE(pool->ResidentBytes(), pool->layout().pool_bytes());
    } else {
      EXPECT_LT(pool->ResidentBytes(), pool->layout().pool_bytes() / 2);
    }
  }
}

// A device with limited memory, for example by a control group.
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
  options_.kv_blocks = 0;  // Create has set it
  options_.kv_cache_mib = 3;
  EXPECT_TRUE(KvPool::Create(model_.info.spec, device, options_).ok());
  options_.kv_blocks = 0;
  options_.kv_cache_max_mib = 9;
  const absl::Status status = KvPool::Create(model_.info.spec, device, options_).status();
  EXPECT_EQ(status,
            absl::InvalidArgumentError("kv-cache-max-mib is 9; the device has 8 MiB of memory"));
}

TEST_F(KvPoolTest, MemoryIsResidentOnceItIsWritten) {
  options_.kv_blocks = 4000;
  const auto pool = KvPool::Create(model_.info.spec, *model_.device, options_);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const int64_t before = pool->ResidentBytes();
  EXPECT_LT(before, pool->layout().pool_bytes());
  std::memset(pool->kernel_address(), 1, pool->layout().pool_bytes());
  EXPECT_GE(pool->ResidentBytes(), pool->layout().pool_bytes());
}

TEST_F(KvPoolTest, IsInAFileForPeersOnTheSameHost) {
  options_.transfer_shm = true;
  const auto pool = KvPool::Create(model_.info.spec, *model_.device, options_);
  ASSERT_TRUE(pool.ok()) << pool.status();
  ASSERT_TRUE(pool->lender().exported().has_value());
  EXPECT_GE(pool->lender().exported()->file, 0);
}

TEST_F(KvPoolTest, WithoutSharedMemoryTcpIsUsedIfItWasRequestedToo) {
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

// A model with a sliding window.
class WindowKvPoolTest : public KvPoolTest {
 protected:
  WindowKvPoolTest() {
    options_.model = TinyModelFile("window-q4_0");
    options_.max_running = 2;
    options_.max_chunk_tokens = 16;
    model_ = *LoadModel(options_);
  }
  KvPool Make() {
    auto pool = KvPool::Create(model_.info.spec, *model_.device, options_);
    EXPECT_TRUE(pool.ok()) << pool.status();
    return *std::move(pool);
  }
};

TEST_F(WindowKvPoolTest, EachGroupHasItsBlocksAndAScratchBlock) {
  const KvPool pool = Make();
  const BlockCounts blocks = pool.BlocksFor(100);
  EXPECT_LT(blocks[1], 40);
  EXPECT_EQ(pool.layout().groups(), 2);
  EXPECT_EQ(pool.layout().group(0).num_blocks(), 101);
  EXPECT_EQ(pool.layout().group(1).num_blocks(), blocks[1] + 1);
  EXPECT_EQ(pool.max_blocks(0), 100);
  EXPECT_EQ(pool.max_blocks(1), blocks[1]);
  const auto windows = pool.Windows(options_);
  ASSERT_EQ(windows.size(), 1u);
  EXPECT_EQ(windows[0].window, 24);
  EXPECT_EQ(windows[0].num_blocks, blocks[1]);
  EXPECT_EQ(windows[0].max_blocks, blocks[1]);
  EXPECT_NE(pool.Description(options_).find("; window 24: "), std::string::npos);
}

TEST_F(WindowKvPoolTest, ItsSizeInMiBCoversAllGroups) {
  options_.kv_blocks = 0;
  options_.kv_cache_mib = 3;
  const KvPool pool = Make();
  const auto bytes_with = [&](int32_t full) {
    const BlockCounts blocks = pool.BlocksFor(full);
    return blocks[0] * pool.layout().group(0).bytes_per_block() +
           blocks[1] * pool.layout().group(1).bytes_per_block();
  };
  EXPECT_LE(bytes_with(options_.kv_blocks), 3 << 20);
  EXPECT_GT(bytes_with(options_.kv_blocks + 1), 3 << 20);
  EXPECT_EQ(pool.BlocksIn(3 << 20), options_.kv_blocks);
  EXPECT_LE(pool.BytesOf(options_.kv_blocks), 3 << 20);
  EXPECT_GT(pool.BytesOf(options_.kv_blocks + 1), 3 << 20);
}

// The content of a group's blocks stays when another group's memory is discarded.
TEST_F(WindowKvPoolTest, MemoryOfOneGroupCanBeFreedAlone) {
  for (const KvLayoutKind layout : {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor}) {
    options_.layout = layout;
    options_.kv_blocks = 4000;
    options_.kv_cache_max_mib = 64;
    KvPool pool = Make();
    ASSERT_TRUE(pool.resizable());
    const auto bytes = static_cast<size_t>(pool.layout().pool_bytes());
    std::memset(pool.kernel_address(), 1, bytes);
    const auto ones_of = [&](int32_t group) {
      const std::byte* part = pool.kernel_address() + pool.layout().offset(group);
      return std::count(part, part + pool.layout().group(group).pool_bytes(), std::byte{1});
    };
    const int64_t of_full = ones_of(0);
    pool.Discard(1, 0, pool.max_blocks(1));
    EXPECT_EQ(ones_of(0), of_full);
    EXPECT_LT(ones_of(1), pool.layout().group(1).pool_bytes() / 2);
    std::memset(pool.kernel_address(), 1, bytes);
    const int64_t of_window = ones_of(1);
    pool.Discard(0, 10, pool.max_blocks(0));
    EXPECT_EQ(ones_of(1), of_window);
    EXPECT_LT(ones_of(0), of_full / 2);
    EXPECT_TRUE(pool.Populate(pool.BlocksFor(pool.max_blocks(0))).ok());
  }
}

// A pool on the emulated GPU.
class CudaKvPoolTest : public KvPoolTest {
 protected:
  static constexpr int64_t kMiB = 1 << 20;

  // A device with `mib` MiB of memory, of which `taken_mib` are in use when TakeMemory is called.
  absl::StatusOr<KvPool> Make(size_t mib, size_t taken_mib) {
    taken_.reset();
    device_.reset();
    device_ = CreateEmulatedDevice({.memory_bytes = mib * kMiB});
    auto pool = KvPool::Create(model_.info.spec, *device_, options_);
    if (!pool.ok()) return pool;
    // Only addresses so far, and what transfers' kernels need.
    before_ = device_->Memory().available;
    EXPECT_GE(before_, device_->Memory().total - 64 * 1024);
    taken_ = *device_->Allocate(taken_mib * kMiB, "buffers of steps");
    const absl::Status taken = pool->TakeMemory(options_);
    if (!taken.ok()) return taken;
    return pool;
  }

  // Returns the bytes that the pool has taken, beside `taken_mib`.
  int64_t PoolBytes(size_t taken_mib) const {
    return before_ - device_->Memory().available - static_cast<int64_t>(taken_mib) * kMiB;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceBuffer> taken_;
  int64_t before_ = 0;
};

TEST_F(CudaKvPoolTest, TakesNinetyPercentOfWhatIsLeftInWholeGranules) {
  for (const KvLayoutKind layout : {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor}) {
    options_.layout = layout;
    options_.kv_blocks = 0;
    options_.kv_cache_mib = 0;
    const auto pool = Make(200, 100);
    ASSERT_TRUE(pool.ok()) << pool.status();
    const int64_t used = PoolBytes(100);
    EXPECT_LE(used, 90 * kMiB);
    EXPECT_GT(used, 80 * kMiB);
    EXPECT_EQ(options_.kv_cache_mib * kMiB, used);
    EXPECT_EQ(pool->max_blocks(0), options_.kv_blocks) << "it cannot grow";
    EXPECT_GT(pool->layout().group(0).num_blocks(), options_.kv_blocks + 1)
        << "addresses for more, because their number was chosen first";
    // All blocks and the scratch block have memory.
    const auto stream = device_->CreateStream();
    const KvLayout& group = pool->layout().group(0);
    const auto scratch = static_cast<int32_t>(group.num_blocks() - 1);
    for (const int32_t block : {0, options_.kv_blocks - 1, scratch}) {
      for (int32_t layer = 0; layer < group.group().layers; ++layer) {
        const std::byte* const at = pool->kernel_address() + group.PieceOffset(layer, 1, block);
        EXPECT_EQ(FromDevice<uint8_t>(*stream, at, 1), std::vector<uint8_t>{0});
      }
    }
    EXPECT_TRUE(device_->Health().ok()) << device_->Health();
    taken_.reset();
  }
}

TEST_F(CudaKvPoolTest, ASizeThatTouchesTheReserveIsRefusedWithAllNumbers) {
  options_.kv_blocks = 0;
  options_.kv_cache_mib = 98;
  EXPECT_TRUE(Make(128, 20).ok());
  options_.kv_blocks = 0;
  options_.kv_cache_mib = 98;
  const absl::Status status = Make(128, 29).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("blocks of KV need 100 MiB; the device has 98 MiB available and "
                                  "keeps 2 MiB of them in reserve"),
            std::string::npos)
      << status;
}

TEST_F(CudaKvPoolTest, GrowthKeepsTheReserve) {
  options_.kv_blocks = 10;
  options_.kv_cache_max_mib = 120;
  const auto pool = Make(128, 0);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const BlockCounts all = pool->BlocksFor(pool->max_blocks(0));
  taken_ = *device_->Allocate(5 * kMiB, "NCCL");
  EXPECT_EQ(pool->Populate(all).code(), absl::StatusCode::kResourceExhausted);
  taken_.reset();
  EXPECT_TRUE(pool->Populate(all).ok());
  EXPECT_GE(device_->Memory().available, GpuReserveBytes(device_->Memory().total));
}

}  // namespace
}  // namespace baton
