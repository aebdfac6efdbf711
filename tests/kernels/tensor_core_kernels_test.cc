#include "kernels/tensor_core/tensor_core_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cpu/cpu_device.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/tensor_core_case.h"

namespace baton {
namespace {

constexpr uint64_t kSeed = 7024;

std::unique_ptr<Device> MakeDevice(int threads, Numerics numerics) {
  return *CreateCpuDevice({.threads = threads, .numerics = numerics});
}

std::vector<float> AttendOn(const Device& device, Stream& stream, const AttentionCase& problem) {
  std::vector<float> out(problem.out_size(), -1.0f);
  device.ops().PagedAttention(stream, problem.Args(out.data()));
  return out;
}

TEST(TensorCoreKernels, ADeviceOfT1AttendsByItsRulesOnAnyNumberOfThreads) {
  for (const KvType type : {KvType::kF16, KvType::kBF16, KvType::kInt8, KvType::kFp8}) {
    const AttentionCase problem({.type = type}, {CausalSequence(90, 60), CausalSequence(300, 1)},
                                kSeed);
    std::vector<std::vector<float>> results = {problem.Expected()};
    for (const Numerics numerics : {Numerics::kT1Sm80, Numerics::kT1Sm90}) {
      const std::vector<float> expected =
          TensorCoreCase(problem, {.dot = DotModelOf(numerics)}).Expected();
      for (const int threads : {1, 3}) {
        const auto device = MakeDevice(threads, numerics);
        const auto stream = device->CreateStream();
        EXPECT_EQ(AttendOn(*device, *stream, problem), expected) << KvTypeName(type);
      }
      for (const std::vector<float>& other : results) EXPECT_NE(expected, other);
      results.push_back(expected);
    }
  }
}

TEST(TensorCoreKernels, PoolsOfF32AreReadAsInR1) {
  const AttentionCase problem({.type = KvType::kF32}, {CausalSequence(300, 3)}, kSeed);
  const auto device = MakeDevice(2, Numerics::kT1Sm90);
  const auto stream = device->CreateStream();
  EXPECT_EQ(AttendOn(*device, *stream, problem), problem.Expected());
}

TEST(TensorCoreKernels, OnlyBF16AndF16WeightsHaveAnotherProduct) {
  for (const InstructionSet set : {InstructionSet::kPlain, BestInstructionSet()}) {
    for (const WeightFormat format : kAllWeightFormats) {
      std::mt19937_64 random(kSeed);
      const int64_t cols = WholeBlocks(format, 96), rows = 32, tokens = 3;
      const std::vector<std::byte> source = RandomGgufMatrix(random, format, rows, cols);
      std::vector<std::byte> packed(PackedMatrixBytes(format, rows, cols) + 64);
      auto* aligned =
          reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(packed.data()) + 63) / 64 * 64);
      PackMatrixRows(format, rows, cols, source.data(), aligned);
      OwnedActivations x(tokens, cols);
      x.f32 = RandomFloats(random, tokens * cols);
      const Activations view = x.view();
      if (IsQuantized(format)) {
        KernelsFor(set).quantize(x.f32.data(), cols,
                                 {nullptr, view.q8, view.scale, view.scaled_sum}, 0, tokens);
      }
      const auto run = [&](const CpuKernels& kernels) {
        std::vector<float> out(tokens * rows);
        kernels.matmul({.x = view,
                        .weight = {format, rows, cols, aligned},
                        .out = out.data(),
                        .out_stride = rows,
                        .tokens = tokens},
                       0, rows, 0, tokens);
        return out;
      };
      const bool is_half = format == WeightFormat::kBF16 || format == WeightFormat::kF16;
      const std::vector<float> r1 = run(KernelsFor(set));
      const std::vector<float> sm80 = run(TensorCoreKernels(set, Numerics::kT1Sm80));
      const std::vector<float> sm90 = run(TensorCoreKernels(set, Numerics::kT1Sm90));
      EXPECT_EQ(sm80 != r1, is_half) << WeightFormatName(format);
      EXPECT_EQ(sm90 != r1, is_half) << WeightFormatName(format);
      EXPECT_EQ(sm80 != sm90, is_half) << WeightFormatName(format);
    }
  }
}

TEST(TensorCoreKernels, StoredValuesAreFiniteAndKeysAreNot) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const KvType type : {KvType::kF16, KvType::kBF16}) {
    std::vector<float> rows = {1.5f, inf, -inf, std::nanf("")};
    rows.resize(16, 0.25f);
    std::vector<uint16_t> pool(64, 0xffff);
    const int64_t slots[2] = {1, -1};
    TensorCoreKernels(InstructionSet::kPlain, Numerics::kT1Sm90)
        .kv_write({.k = rows.data(),
                   .v = rows.data(),
                   .stride = 16,
                   .kv_heads = 1,
                   .head_dim = 16,
                   .slot_mapping = slots,
                   .kv = {.base = pool.data(),
                          .type = type,
                          .block_size_log2 = 1,
                          .block_stride = 64,
                          .token_stride = 32,
                          .head_stride = 16,
                          .value_offset = 16},
                   .tokens = 2},
                  0, 2);
    const auto widen = type == KvType::kBF16 ? BF16ToF32 : F16ToF32;
    const float largest = type == KvType::kBF16 ? 0x1.fep127f : 65504;
    EXPECT_EQ(widen(pool[32]), 1.5f);
    EXPECT_EQ(widen(pool[33]), inf);
    EXPECT_TRUE(std::isnan(widen(pool[35])));
    EXPECT_EQ(widen(pool[48]), 1.5f);
    EXPECT_EQ(widen(pool[49]), largest);
    EXPECT_EQ(widen(pool[50]), -largest);
    EXPECT_EQ(pool[51], 0);
    EXPECT_EQ(pool[0], 0xffff) << "only the named slot is written";
  }
}

// The row's scale keeps the NaN. Its bytes are zeros, so a row that does not see it multiplies
// finite numbers.
TEST(TensorCoreKernels, ANanInAnFp8RowReachesOnlyTheTokensThatSeeIt) {
  constexpr int64_t kDim = 16, kRow = kDim + 4, kSlots = 16;
  const float nan = std::nanf("");
  for (const bool in_value : {false, true}) {
    std::mt19937_64 random(kSeed);
    std::vector<float> k = RandomFloats(random, kSlots * kDim);
    std::vector<float> v = RandomFloats(random, kSlots * kDim);
    (in_value ? v : k)[7 * kDim + 3] = nan;
    std::vector<uint8_t> pool(2 * kSlots * kRow);
    std::vector<int64_t> slots(kSlots);
    std::iota(slots.begin(), slots.end(), 0);
    const KvLayerView kv{.base = pool.data(),
                         .type = KvType::kFp8,
                         .block_size_log2 = 4,
                         .block_stride = 2 * kSlots * kRow,
                         .token_stride = kRow,
                         .head_stride = kDim,
                         .value_offset = kSlots * kRow,
                         .scale_offset = kDim};
    const CpuKernels& kernels = TensorCoreKernels(InstructionSet::kPlain, Numerics::kT1Sm90);
    kernels.kv_write({k.data(), v.data(), kDim, 1, kDim, slots.data(), kv, kSlots}, 0, kSlots);
    const std::vector<float> q = RandomFloats(random, 2 * kDim);
    const VisibleRun run;
    const RowRuns rows[2] = {{.run_count = 1, .last_begin = 0, .last_end = 7},
                             {.run_count = 1, .last_begin = 0, .last_end = 8}};
    const int32_t zeros[2] = {0, 0};
    std::vector<float> out(2 * kDim);
    kernels.tensor_core_attention({.q = q.data(),
                                   .q_stride = kDim,
                                   .out = out.data(),
                                   .query_heads = 1,
                                   .kv_heads = 1,
                                   .head_dim = kDim,
                                   .softmax_scale = 0.25f,
                                   .kv = kv,
                                   .sequence_of_token = zeros,
                                   .runs = &run,
                                   .row_runs = rows,
                                   .first_block = zeros,
                                   .tokens = 2},
                                  0, 2);
    for (int64_t d = 0; d < kDim; ++d) {
      EXPECT_TRUE(std::isfinite(out[d])) << d;
      EXPECT_TRUE(std::isnan(out[kDim + d])) << d;
    }
  }
}

TEST(TensorCoreKernels, TheDeviceNamesItsNumerics) {
  for (const Numerics numerics : kAllNumerics) {
    const std::string name = "numerics " + std::string(NumericsName(numerics));
    EXPECT_NE(MakeDevice(1, numerics)->Description().find(name), std::string::npos);
  }
}

}  // namespace
}  // namespace baton
