// A runner on the emulated GPU takes its memory at creation, or says what is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "model/llama/llama_runner.h"
#include "tests/cuda/emulator_faults.h"
#include "tests/cuda/emulator_library.h"
#include "tests/model/model_files.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

class LlamaRunnerWarmUpTest : public ::testing::Test {
 protected:
  absl::Status CreateRunner(const gpu_emulator::EmulatorSettings& settings,
                            const ModelRunnerOptions& options) {
    runner_.reset();
    pool_.reset();
    weights_.reset();
    device_.reset();
    device_ = CreateEmulatedDevice(settings);
    auto weights = LlamaWeights::Load(*file_, config_, *device_, nullptr);
    if (!weights.ok()) return weights.status();
    weights_ = *std::move(weights);
    const std::vector<int64_t> blocks = {17};
    layout_ = *KvPoolLayout::Create(config_.Kv(), KvLayoutKind::kBlockMajor, 16, blocks);
    pool_ = *device_->Reserve(static_cast<size_t>(layout_.pool_bytes()), "pool", false);
    auto runner =
        LlamaRunner::Create(config_, *weights_, layout_, pool_->data(), *device_, options);
    if (!runner.ok()) return runner.status();
    runner_ = *std::move(runner);
    return absl::OkStatus();
  }
  static gpu_emulator::EmulatorCounters counters() { return EmulatorLibrary().counters(); }

  const std::unique_ptr<GgufFile> file_ = *GgufFile::Open(TinyModelPath("q4_1"));
  const LlamaConfig config_ = *ReadLlamaConfig(*file_);
  KvPoolLayout layout_ = KvLayout();
  std::unique_ptr<Device> device_;
  std::unique_ptr<LlamaWeights> weights_;
  std::unique_ptr<DeviceBuffer> pool_;
  std::unique_ptr<LlamaRunner> runner_;
};

TEST_F(LlamaRunnerWarmUpTest, EveryBucketIsCapturedAtCreationAndNothingRuns) {
  ASSERT_EQ(CreateRunner({}, {.limits = {.max_context = 256}, .graph_buckets = {1, 2, 6}}),
            absl::OkStatus());
  EXPECT_EQ(counters().captures, 3);
  EXPECT_EQ(counters().launches, 0);
}

TEST_F(LlamaRunnerWarmUpTest, WithoutGraphsNoneIsCaptured) {
  ASSERT_EQ(CreateRunner({}, {.limits = {.max_context = 256}, .graph = false}), absl::OkStatus());
  EXPECT_EQ(counters().captures, 0);
}

TEST_F(LlamaRunnerWarmUpTest, TheFirstCopyOfABlockLooksUpNoKernel) {
  ASSERT_EQ(CreateRunner({}, {.limits = {.max_context = 256}}), absl::OkStatus());
  ASSERT_EQ(pool_->Populate(0, pool_->size()), absl::OkStatus());
  const EmulatorFaults emulator;
  const int64_t known = emulator.calls(gpu_emulator::DriverCall::kFindKernel);
  EXPECT_GT(known, 0);
  const BlockCopy copy = {.from = BlockId(3), .to = BlockId(5), .tokens = 7};
  ASSERT_EQ(runner_->CopyBlocks({&copy, 1}), absl::OkStatus());
  EXPECT_GT(counters().launches, 0);
  EXPECT_EQ(emulator.calls(gpu_emulator::DriverCall::kFindKernel), known);
}

TEST_F(LlamaRunnerWarmUpTest, TooLittleSharedMemoryNamesTheKernelAndTheLimit) {
  const absl::Status status =
      CreateRunner({.shared_bytes = 9000}, {.limits = {.max_context = 256}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("a step of 512 tokens"), HasSubstr("cannot run on this device"),
                    HasSubstr("kernel \"baton_"), HasSubstr("bytes of shared memory"),
                    HasSubstr("has 9000")));
}

// The creation fails, or leaves the device working, for every amount of memory.
TEST_F(LlamaRunnerWarmUpTest, TooLittleMemoryNamesTheSizes) {
  int failed = 0;
  for (size_t kib = 1024; kib < 16 * 1024; kib += 256) {
    const absl::Status status =
        CreateRunner({.memory_bytes = kib << 10}, {.limits = {.max_context = 256}});
    if (status.ok()) {
      EXPECT_TRUE(device_->Health().ok());
      continue;
    }
    ++failed;
    EXPECT_THAT(std::string(status.message()),
                testing::AnyOf(AllOf(HasSubstr("cannot allocate"), HasSubstr("are available")),
                               HasSubstr("cannot run on this device")));
  }
  EXPECT_GT(failed, 4);
  EXPECT_TRUE(CreateRunner({.memory_bytes = 64 * kMiB}, {.limits = {.max_context = 256}}).ok());
}

}  // namespace
}  // namespace baton
