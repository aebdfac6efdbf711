// Rotation, KV writes and comparison on the emulator against the plain CPU kernels, byte for byte.
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

// A pool of blocks of two slots: K of both, then V of both. A scale may lie at an odd byte.
KvLayerView ViewOf(KvType type, int64_t kv_heads, int64_t head_dim, int64_t gap) {
  const int64_t row = kv_heads * head_dim + (HasScales(type) ? 4 * kv_heads + gap : 0);
  return {.base = nullptr,
          .type = type,
          .block_size_log2 = 1,
          .block_stride = 4 * row,
          .token_stride = row,
          .head_stride = head_dim,
          .value_offset = 2 * row,
          .scale_offset = kv_heads * head_dim};
}

constexpr int64_t kBlocks = 4;
constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8,
                             KvType::kFp8};

// Rows of Q, K and V. They lie on the heap, without a gap behind the last row.
struct WrittenRows {
  explicit WrittenRows(const RopeKvWriteArgs& args)
      : q_values(args.query_heads * args.head_dim),
        k_values(args.kv_heads * args.head_dim),
        values(args.tokens * args.stride) {}
  // Writes to the pool, and checks all bytes of rows and pool against the CPU's rotation and
  // storing one after the other. `args.kv` and the buffers of `args` need no addresses.
  void ExpectTwin(RopeKvWriteArgs args, ChosenLauncher& launcher, Numerics numerics) const {
    const CpuKernels& twin = numerics == Numerics::kR1
                                 ? PlainKernels()
                                 : TensorCoreKernels(InstructionSet::kPlain, numerics);
    std::vector<float> expected_rows = values, rows = values;
    std::vector<std::byte> expected(kBlocks * args.kv.block_stride * KvTypeBytes(args.kv.type),
                                    std::byte{0x5a});
    std::vector<std::byte> pool = expected;
    twin.rope({.x = expected_rows.data(),
               .stride = args.stride,
               .heads = args.query_heads + args.kv_heads,
               .head_dim = args.head_dim,
               .cosines = args.cosines,
               .sines = args.sines,
               .half = args.half,
               .neighbours = args.neighbours,
               .tokens = args.tokens},
              0, args.tokens);
    args.kv.base = expected.data();
    twin.kv_write({.k = expected_rows.data() + q_values,
                   .v = expected_rows.data() + q_values + k_values,
                   .stride = args.stride,
                   .kv_heads = args.kv_heads,
                   .head_dim = args.head_dim,
                   .slot_mapping = args.slot_mapping,
                   .kv = args.kv,
                   .tokens = args.tokens},
                  0, args.tokens);
    args.kv.base = pool.data();
    args.qk = rows.data();
    args.v = rows.data() + q_values + k_values;
    LaunchRopeKvWrite(launcher, args, numerics);
    ASSERT_TRUE(expected == pool);
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected_rows, rows, "rows"));
  }

  const int64_t q_values, k_values;
  std::vector<float> values;
};

// Rows with and without alignment, rotated whole and in part. One token is padding.
TEST(CudaRopeKvWrite, EqualsRotatingAndThenStoring) {
  std::mt19937_64 random(kSeed);
  ChosenLauncher launcher;
  const std::vector<int64_t> slots = {5, -1, 2};
  const auto tokens = static_cast<int64_t>(slots.size());
  for (const int64_t head_dim : {1, 7, 64, 80, 96, 128, 136, 256}) {
    for (const int64_t half : {head_dim / 2, head_dim / 4}) {
      const std::vector<float> cosines = RandomFloats(random, tokens * half);
      const std::vector<float> sines = RandomFloats(random, tokens * half);
      for (const bool neighbours : {true, false}) {
        for (const int64_t gap : {0, 1}) {
          for (const KvType type : kTypes) {
            RopeKvWriteArgs args{.stride = 7 * head_dim + gap,
                                 .query_heads = 3,
                                 .kv_heads = 2,
                                 .head_dim = head_dim,
                                 .cosines = cosines.data(),
                                 .sines = sines.data(),
                                 .half = half,
                                 .neighbours = neighbours,
                                 .slot_mapping = slots.data(),
                                 .kv = ViewOf(type, 2, head_dim, gap),
                                 .tokens = tokens};
            WrittenRows rows(args);
            rows.values = RandomFloats(random, rows.values.size());
            for (const Numerics numerics : {Numerics::kR1, Numerics::kT1Sm90}) {
              SCOPED_TRACE(absl::StrCat(std::string(KvTypeName(type)), " head_dim ", head_dim,
                                        " half ", half, " neighbours ", neighbours, " gap ", gap));
              ASSERT_NO_FATAL_FAILURE(rows.ExpectTwin(args, launcher, numerics));
            }
          }
        }
      }
    }
  }
}

// All bit patterns, NaNs included. Bytes of other slots stay.
TEST(CudaRopeKvWrite, StoresEveryBitPatternLikePlain) {
  std::mt19937_64 random(kSeed);
  ChosenLauncher launcher;
  const std::vector<int64_t> slots = {5, 0, -1, 7, 2, 4};
  for (const KvType type : kTypes) {
    for (const int64_t head_dim : {1, 15, 16, 40, 64, 80, 96, 128, 256}) {
      for (const int64_t gap : {0, 1}) {
        SCOPED_TRACE(absl::StrCat(std::string(KvTypeName(type)), " head_dim ", head_dim));
        const RopeKvWriteArgs args{.stride = 4 * head_dim + 4 * gap,
                                   .kv_heads = 2,
                                   .head_dim = head_dim,
                                   .slot_mapping = slots.data(),
                                   .kv = ViewOf(type, 2, head_dim, gap),
                                   .tokens = static_cast<int64_t>(slots.size())};
        WrittenRows rows(args);
        for (float& value : rows.values) {
          auto bits = static_cast<uint32_t>(random());
          if (bits % 2 == 0) bits = (bits & 0x8fffffffu) + 0x30000000u;  // near f16's range
          value = std::bit_cast<float>(bits);
        }
        std::fill_n(rows.values.begin(), head_dim, 0.0f);
        ASSERT_NO_FATAL_FAILURE(rows.ExpectTwin(args, launcher, Numerics::kR1));
      }
    }
  }
}

// Rows of ordinary numbers, of midpoints between e4m3 numbers, and of numbers so small that 448 /
// amax overflows.
TEST(CudaRopeKvWrite, Fp8RowsRoundLikePlain) {
  std::mt19937_64 random(kSeed);
  ChosenLauncher launcher;
  constexpr int64_t kRows = 6, kDim = 80, kStride = 2 * kDim;
  const std::vector<int64_t> slots = {3, 0, 1, 5, 4, 2};
  const RopeKvWriteArgs args{.stride = kStride,
                             .kv_heads = 1,
                             .head_dim = kDim,
                             .slot_mapping = slots.data(),
                             .kv = ViewOf(KvType::kFp8, 1, kDim, 0),
                             .tokens = kRows};
  WrittenRows rows(args);
  rows.values = RandomFloats(random, kRows * kStride);
  float* const k = rows.values.data();
  for (int64_t d = 0; d < kStride; ++d) {
    k[kStride + d] *= 1e-37f;
    k[2 * kStride + d] *= 1e-42f;
    k[3 * kStride + d] = 0;
    for (const int64_t row : {4, 5}) {
      const auto low = static_cast<uint8_t>(random() % 0x7e);
      const double middle = (NaiveFp8Value(low) + NaiveFp8Value(static_cast<uint8_t>(low + 1))) / 2;
      k[row * kStride + d] = static_cast<float>(random() % 2 == 0 ? middle : -middle);
    }
  }
  for (const int64_t row : {4, 5}) {  // so that K's scale and V's are 1
    k[row * kStride] = k[(row + 1) * kStride - 1] = -448.0f;
  }
  rows.ExpectTwin(args, launcher, Numerics::kR1);
}

// NUMERICS_T1 §4: every V in a pool is finite, K keeps its infinities and NaNs.
TEST(CudaRopeKvWrite, StoresExtremesLikeTheTwinOfT1) {
  std::mt19937_64 random(kSeed);
  ChosenLauncher launcher;
  const std::vector<int64_t> slots = {0, -1, 2, 1};
  for (const KvType type : kTypes) {
    for (const int64_t head_dim : {7, 64, 96, 128, 256}) {
      SCOPED_TRACE(absl::StrCat(std::string(KvTypeName(type)), " head_dim ", head_dim));
      const RopeKvWriteArgs args{.stride = 4 * head_dim,
                                 .kv_heads = 2,
                                 .head_dim = head_dim,
                                 .slot_mapping = slots.data(),
                                 .kv = ViewOf(type, 2, head_dim, 0),
                                 .tokens = static_cast<int64_t>(slots.size())};
      WrittenRows rows(args);
      rows.values = ExtremeFloats(random, rows.values.size());
      for (const auto& [at, bits] : {std::pair{1, 0x7f800000u},
                                     {2, 0xff800000u},
                                     {3, 0x7fc12345u},
                                     {4, 0xffffffffu},
                                     {5, 0x7f7fffffu},
                                     {6, 0xff7fffffu}}) {
        rows.values[at] = rows.values[rows.k_values + at] = std::bit_cast<float>(bits);
      }
      ASSERT_NO_FATAL_FAILURE(rows.ExpectTwin(args, launcher, Numerics::kT1Sm90));
    }
  }
}

TEST(CudaCompareKv, EqualsPlainForEveryType) {
  std::mt19937_64 random(kSeed);
  ChosenLauncher launcher;
  for (const KvType type : kTypes) {
    for (const int64_t head_dim : {1, 15, 16, 40, 64, 80, 96, 256}) {
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
          const KvLayerView view = ViewOf(type, kv_heads, head_dim, gap);
          std::vector<std::byte> pool(kBlocks * view.block_stride * KvTypeBytes(type));
          KvWriteArgs write{.k = stored_k.data(),
                            .v = stored_v.data(),
                            .stride = stride,
                            .kv_heads = kv_heads,
                            .head_dim = head_dim,
                            .slot_mapping = every_slot.data(),
                            .kv = view,
                            .tokens = tokens};
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
