// Faults planted in the attention kernels of t1: every barrier between the warps that share a tile,
// and every wait for copies, does nothing, one at a time. Each must change a result, or break a
// rule of the emulator, under some order of execution. tensor_core_warpgroups_faults_test.cc has
// the kernel for chunks of 16-bit pools.
//
// Barriers of the plan are left out: without them, a block's share of the work is undefined.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "kernels/cuda/launch_tensor_core_attention.h"
#include "kernels/tensor_core/tensor_core_attention.h"
#include "tests/gpu_emulator/executor.h"
#include "tests/gpu_emulator/kernel_registry.h"
#include "tests/gpu_emulator/sanitizers.h"
#include "tests/kernels/attention_case.h"

namespace baton {
namespace {

#ifndef BATON_EMULATOR_TSAN  // an order of threads shows nothing there: races do

using gpu_emulator::ExecutionOrder;
using gpu_emulator::Executor;
using gpu_emulator::Primitive;

// A launcher that keeps the first error instead of ending the program.
class StatusLauncher final : public KernelLauncher {
 public:
  explicit StatusLauncher(Executor& executor) : executor_(executor) {}
  void Launch(std::string_view kernel, const LaunchShape& shape, const void* params,
              size_t bytes) override {
    const gpu_emulator::EarlyStart early;
    status_.Update(executor_.Run(*gpu_emulator::FindKernel(kernel), shape, params, bytes, &early));
  }
  int multiprocessors() const override { return 3; }
  uint32_t max_shared_bytes() const override { return 227 << 10; }
  std::byte* Workspace(std::string_view, size_t bytes) override {
    workspace_.assign(bytes + 256, std::byte{0});
    void* start = workspace_.data();
    size_t space = workspace_.size();
    return static_cast<std::byte*>(std::align(256, bytes, start, space));
  }
  const absl::Status& status() const { return status_; }

 private:
  Executor& executor_;
  std::vector<std::byte> workspace_;
  absl::Status status_;
};

struct FaultyKernel {
  const char* name;
  AttentionBatch batch;
  KvType type;
  size_t faults;  // places that the kernel reaches
};

// Contexts of several tiles and segments, with runs of their own and a unit of several blocks.
const AttentionCase& Problem(KvType type) {
  static std::map<KvType, AttentionCase> problems;
  const AttentionShape shape{
      .query_heads = 4, .kv_heads = 1, .head_dim = 64, .type = type, .row_padding = 12};
  return problems
      .try_emplace(
          type, shape,
          std::vector<AttentionSequence>{
              CausalSequence(700, 1), {.slots = 330, .tokens = {{{0, 100}, {130, 300, 130, 5}}}}},
          7)
      .first->second;
}

absl::Status AttendOn(Executor& executor, const FaultyKernel& kernel) {
  const AttentionCase& problem = Problem(kernel.type);
  std::vector<float> expected(problem.out_size()), actual(problem.out_size());
  TensorCoreAttention(problem.Args(expected.data()), 0, problem.tokens());
  StatusLauncher launcher(executor);
  LaunchTensorCoreAttention(launcher, problem.Args(actual.data()), kernel.batch, Numerics::kT1Sm90,
                            1 << 20);
  if (!launcher.status().ok()) return launcher.status();
  return std::memcmp(expected.data(), actual.data(), expected.size() * sizeof(float)) == 0
             ? absl::OkStatus()
             : absl::DataLossError("wrong attention");
}

const FaultyKernel kFaultyKernels[] = {
    {"Decode", AttentionBatch::kDecode, KvType::kInt8, 3},
    {"Chunks", AttentionBatch::kChunks, KvType::kInt8, 1},
    {"DecodeFp8", AttentionBatch::kDecode, KvType::kFp8, 3},
    {"ChunksFp8", AttentionBatch::kChunks, KvType::kFp8, 1},
};

class TensorCoreAttentionFaults : public testing::TestWithParam<FaultyKernel> {};
INSTANTIATE_TEST_SUITE_P(Kernels, TensorCoreAttentionFaults, testing::ValuesIn(kFaultyKernels),
                         [](const testing::TestParamInfo<FaultyKernel>& info) {
                           return std::string(info.param.name);
                         });

TEST_P(TensorCoreAttentionFaults, ThatChangeAResultAreSeenUnderSomeOrder) {
  const FaultyKernel& kernel = GetParam();
  Executor right;
  ASSERT_EQ(AttendOn(right, kernel), absl::OkStatus());
  size_t faults = 0;
  for (const Primitive primitive : {Primitive::kBlockBarrier, Primitive::kCopyWait}) {
    const std::vector<std::string> places = right.places(primitive);
    for (const std::string& place : places) {
      if (primitive == Primitive::kBlockBarrier &&
          !absl::StrContains(place, "tensor_core_tile.cuh")) {
        continue;
      }
      ++faults;
      bool caught = false;
      for (const ExecutionOrder order : {ExecutionOrder::kForward, ExecutionOrder::kReverse}) {
        Executor faulty({.order = order, .skipped = {primitive, place}});
        caught = caught || !AttendOn(faulty, kernel).ok();
      }
      EXPECT_TRUE(caught) << "without " << place;
    }
  }
  EXPECT_EQ(faults, kernel.faults);
}

#endif

}  // namespace
}  // namespace baton
