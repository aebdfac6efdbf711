// Rotation and KV writes on the emulator against the plain CPU kernels, byte for byte.
#include "kernels/cuda/launch_kv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/plain_kernels.h"
#include "kernels/tensor_core/tensor_core_kernels.h"
#include "tests/cuda/chosen_launcher.h"
#include "tests/kernels/fast_kernels.h"
#include "tests/kernels/naive_fp8.h"
#include "tests/kernels/random_inputs.h"

namespace baton {
namespace {

constexpr uint64_t kSeed = 16006;

TEST(CudaRotaryTable, EqualsTheCpusForEveryComponentAndFarPosition) {
  std::mt19937_64 random(kSeed);
  ChosenLauncher launcher;
  ThreadPool pool(1);
  const CpuOps ops(PlainKernels(), pool);
  CpuStream stream(pool);
  for (const int64_t half : {1, 32, 131}) {
    for (const bool with_components : {false, true}) {
      const int64_t tokens = 5;
      std::vector<int32_t> positions;
      for (int64_t i = 0; i < tokens * kPositionComponents; ++i) {
        positions.push_back(i == 4   ? std::numeric_limits<int32_t>::max()
                            : i == 7 ? -3
                                     : static_cast<int32_t>(random() % 100000));
      }
      std::vector<double> frequencies;
      std::vector<uint8_t> components;
      for (int64_t i = 0; i < half; ++i) {
        frequencies.push_back(1.0 / static_cast<double>(1 + random() % 10000));
        components.push_back(static_cast<uint8_t>(random() % kPositionComponents));
      }
      const size_t size = tokens * half;
      std::vector<float> cosines(size + 1, 7), sines(size + 1, 7), expected_cosines = cosines,
                                                                   expected_sines = sines;
      RotaryTableArgs args{positions.data(),
                           frequencies.data(),
                           with_components ? components.data() : nullptr,
                           cosines.data(),
                           sines.data(),
                           tokens,
                           half,
                           with_components ? 1.0 : 1.1386};
      LaunchRotaryTable(launcher, args);
      args.cosines = expected_cosines.data();
      args.sines = expected_sines.data();
      ops.RotaryTable(stream, args);
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected_cosines, cosines, "cosines"));
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected_sines, sines, "sines"));
    }
  }
}

TEST(CudaRope, EqualsPlainForBothPairings) {
  std::mt19937_64 random(kSeed);
  ChosenLauncher launcher;
  const int64_t tokens = 3;
  for (const bool neighbours : {true, false}) {
    for (const int64_t half : {1, 7, 16, 32, 128}) {
      for (const int64_t unrotated : {0, 5}) {
        const int64_t head_dim = 2 * half + unrotated;
        const int64_t heads = 3;
        const int64_t stride = heads * head_dim + 2;
        const auto x = ExtremeFloats(random, (tokens - 1) * stride + heads * head_dim);
        const auto cosines = RandomFloats(random, tokens * half);
        const auto sines = RandomFloats(random, tokens * half);
        auto expected = x;
        auto actual = x;
        RopeArgs args{.x = nullptr,
                      .stride = stride,
                      .heads = heads,
                      .head_dim = head_dim,
                      .cosines = cosines.data(),
                      .sines = sines.data(),
                      .half = half,
                      .neighbours = neighbours,
                      .tokens = tokens};
        args.x = expected.data();
        PlainKernels().rope(args, 0, tokens);
        args.x = actual.data();
        LaunchRope(launcher, args);
        ASSERT_NO_FATAL_FAILURE(ExpectSameBits(
            expected, actual, absl::StrCat("half ", half, " neighbours ", neighbours)));
      }
    }
  }
}

// All bit patterns, NaNs included. A scale may lie at an odd byte. Bytes of other slots stay.
TEST(CudaKvWrite, EqualsPlainForEveryTypeAndBitPattern) {
  std::mt19937_64 random(kSeed);
  ChosenLauncher launcher;
  const int64_t tokens = 6;
  const int64_t kv_heads = 2;
  for (const KvType type :
       {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8, KvType::kFp8}) {
    for (const int64_t head_dim : {1, 15, 16, 40, 64, 80, 128, 256}) {
      for (const int64_t gap : {0, 1}) {
        const int64_t stride = kv_heads * head_dim + 4 * gap;
        std::vector<float> k(tokens * stride);
        std::vector<float> v(tokens * stride);
        for (auto* rows : {&k, &v}) {
          for (float& value : *rows) {
            auto bits = static_cast<uint32_t>(random());
            if (bits % 2 == 0) bits = (bits & 0x8fffffffu) + 0x30000000u;  // near f16's range
            value = std::bit_cast<float>(bits);
          }
        }
        std::fill_n(k.begin(), head_dim, 0.0f);
        const std::vector<int64_t> slots = {5, 0, -1, 7, 2, 4};
        KvWriteArgs args{.k = k.data(),
                         .v = v.data(),
                         .stride = stride,
                         .kv_heads = kv_heads,
                         .head_dim = head_dim,
                         .slot_mapping = slots.data(),
                         .kv = {},
                         .tokens = tokens};
        args.kv.type = type;
        args.kv.block_size_log2 = 1;
        args.kv.head_stride = head_dim;
        args.kv.scale_offset = kv_heads * head_dim;
        args.kv.token_stride = kv_heads * head_dim + (HasScales(type) ? 4 * kv_heads + gap : 0);
        args.kv.value_offset = 2 * args.kv.token_stride;
        args.kv.block_stride = 4 * args.kv.token_stride;
        std::vector<std::byte> expected(4 * args.kv.block_stride * KvTypeBytes(type),
                                        std::byte{0x5a});
        std::vector<std::byte> actual = expected;
        args.kv.base = expected.data();
        PlainKernels().kv_write(args, 0, tokens);
        args.kv.base = actual.data();
        LaunchKvWrite(launcher, args);
        ASSERT_TRUE(expected == actual) << KvTypeName(type) << " head_dim " << head_dim;
      }
    }
  }
}

// Rows of ordinary numbers, of midpoints between e4m3 numbers, and of numbers so small that 448 /
// amax overflows.
TEST(CudaKvWrite, Fp8RowsRoundLikePlain) {
  std::mt19937_64 random(kSeed);
  ChosenLauncher launcher;
  constexpr int64_t kRows = 6, kDim = 80, kRow = kDim + 4;
  std::vector<float> k = RandomFloats(random, kRows * kDim);
  for (int64_t d = 0; d < kDim; ++d) {
    k[kDim + d] *= 1e-37f;
    k[2 * kDim + d] *= 1e-42f;
    k[3 * kDim + d] = 0;
    for (const int64_t row : {4, 5}) {
      const auto low = static_cast<uint8_t>(random() % 0x7e);
      const double middle = (NaiveFp8Value(low) + NaiveFp8Value(static_cast<uint8_t>(low + 1))) / 2;
      k[row * kDim + d] = static_cast<float>(random() % 2 == 0 ? middle : -middle);
    }
  }
  k[4 * kDim] = k[6 * kDim - 1] = -448.0f;  // so the scale is 1
  const std::vector<float> v(k.rbegin(), k.rend());
  const std::vector<int64_t> slots = {3, 0, 1, 5, 4, 2};
  KvWriteArgs args{.k = k.data(),
                   .v = v.data(),
                   .stride = kDim,
                   .kv_heads = 1,
                   .head_dim = kDim,
                   .slot_mapping = slots.data(),
                   .kv = {.type = KvType::kFp8,
                          .block_size_log2 = 1,
                          .block_stride = 4 * kRow,
                          .token_stride = kRow,
                          .head_stride = kDim,
                          .value_offset = 2 * kRow,
                          .scale_offset = kDim},
                   .tokens = kRows};
  std::vector<std::byte> expected(3 * args.kv.block_stride, std::byte{0x5a});
  std::vector<std::byte> actual = expected;
  args.kv.base = expected.data();
  PlainKernels().kv_write(args, 0, kRows);
  args.kv.base = actual.data();
  LaunchKvWrite(launcher, args);
  EXPECT_TRUE(expected == actual);
}

// NUMERICS_T1 §4: every V in a pool is finite, K keeps its infinities and NaNs.
TEST(CudaKvWrite, EqualsTheTwinOfT1) {
  std::mt19937_64 random(kSeed);
  ChosenLauncher launcher;
  const int64_t tokens = 4, kv_heads = 2;
  for (const KvType type :
       {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8, KvType::kFp8}) {
    for (const int64_t head_dim : {7, 64}) {
      const int64_t row = kv_heads * head_dim;
      std::vector<float> k = ExtremeFloats(random, tokens * row);
      std::vector<float> v = ExtremeFloats(random, tokens * row);
      for (const auto& [at, bits] : {std::pair{1, 0x7f800000u},
                                     {2, 0xff800000u},
                                     {3, 0x7fc12345u},
                                     {4, 0xffffffffu},
                                     {5, 0x7f7fffffu},
                                     {6, 0xff7fffffu}}) {
        k[at] = v[at] = std::bit_cast<float>(bits);
      }
      const std::vector<int64_t> slots = {0, -1, 2, 1};
      KvWriteArgs args{.k = k.data(),
                       .v = v.data(),
                       .stride = row,
                       .kv_heads = kv_heads,
                       .head_dim = head_dim,
                       .slot_mapping = slots.data(),
                       .kv = {},
                       .tokens = tokens};
      args.kv.type = type;
      args.kv.block_size_log2 = 1;
      args.kv.head_stride = head_dim;
      args.kv.scale_offset = row;
      args.kv.token_stride = row + (HasScales(type) ? 4 * kv_heads : 0);
      args.kv.value_offset = 2 * args.kv.token_stride;
      args.kv.block_stride = 4 * args.kv.token_stride;
      std::vector<std::byte> expected(2 * args.kv.block_stride * KvTypeBytes(type));
      std::vector<std::byte> actual = expected;
      args.kv.base = expected.data();
      TensorCoreKernels(InstructionSet::kPlain, Numerics::kT1Sm90).kv_write(args, 0, tokens);
      args.kv.base = actual.data();
      LaunchKvWrite(launcher, args, Numerics::kT1Sm90);
      EXPECT_TRUE(expected == actual) << KvTypeName(type) << " head_dim " << head_dim;
    }
  }
}

TEST(CudaCompareKv, EqualsPlainForEveryType) {
  std::mt19937_64 random(kSeed);
  ChosenLauncher launcher;
  for (const KvType type :
       {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8, KvType::kFp8}) {
    for (const int64_t head_dim : {1, 15, 16, 40, 64, 80, 256}) {
      for (const int64_t tokens : {1, 4, 6}) {
        for (const int64_t gap : {0, 1}) {
          SCOPED_TRACE(absl::StrCat(std::string(KvTypeName(type)), ", ", tokens,
                                    " tokens, head_dim ", head_dim));
          const int64_t kv_heads = 3;
          const int64_t stride = kv_heads * head_dim + 4 * gap;
          const std::vector<float> stored_k = RandomFloats(random, tokens * stride);
          const std::vector<float> stored_v = RandomFloats(random, tokens * stride);
          const std::vector<float> k = RandomFloats(random, tokens * stride);
          const std::vector<float> v = RandomFloats(random, tokens * stride);
          const std::vector<int64_t> every_slot = {5, 0, 3, 7, 2, 4};
          std::vector<int64_t> slots = every_slot;
          slots[2] = -1;
          KvWriteArgs write{.k = stored_k.data(),
                            .v = stored_v.data(),
                            .stride = stride,
                            .kv_heads = kv_heads,
                            .head_dim = head_dim,
                            .slot_mapping = every_slot.data(),
                            .kv = {},
                            .tokens = tokens};
          write.kv.type = type;
          write.kv.block_size_log2 = 1;
          write.kv.head_stride = head_dim;
          write.kv.scale_offset = kv_heads * head_dim;
          write.kv.token_stride = kv_heads * head_dim + (HasScales(type) ? 4 * kv_heads + gap : 0);
          write.kv.value_offset = 2 * write.kv.token_stride;
          write.kv.block_stride = 4 * write.kv.token_stride;
          std::vector<std::byte> pool(4 * write.kv.block_stride * KvTypeBytes(type));
          write.kv.base = pool.data();
          PlainKernels().kv_write(write, 0, tokens);
          std::vector<float> expected(tokens * 2 * kv_heads + 1, 7), actual = expected;
          CompareKvArgs args{.k = k.data(),
                             .v = v.data(),
                             .stride = stride,
                             .kv_heads = kv_heads,
                             .head_dim = head_dim,
                             .slots = slots.data(),
                             .kv = write.kv,
                             .changes = expected.data(),
                             .tokens = tokens};
          plain::CompareKv(args, 0, tokens);
          args.changes = actual.data();
          LaunchCompareKv(launcher, args);
          ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected, actual, "changes"));
          EXPECT_GT(expected[0], 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton
