// Compares the bits of the CUDA kernels of matrix products with the plain ones (NUMERICS §4).
#include "kernels/cuda/launch_matmul.h"

#include <gtest/gtest.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/cuda/chosen_launcher.h"
#include "tests/cuda/every_batch.h"
#include "tests/cuda/guarded_rows.h"

namespace baton {
namespace {

OwnedActivations QuantizedRows(const std::vector<float>& values, int64_t tokens, int64_t cols) {
  OwnedActivations x(tokens, cols);
  if (cols % 32 == 0) {
    PlainKernels().quantize(values.data(), cols, x.view(), 0, tokens);
  } else {
    x.f32 = values;
  }
  return x;
}

// Multiplies in both ways and compares, with a gap between rows of the output.
void ExpectPlainProduct(std::mt19937_64& random, ChosenLauncher& launcher,
                        const BothMatrices& weight, OwnedActivations& x, int64_t tokens) {
  const int64_t stride = weight.rows + static_cast<int64_t>(random() % 4);
  const std::vector<float> initial = RandomFloats(random, tokens * stride);
  std::vector<float> expected = initial;
  Guarded<float> actual(initial);
  MatMulArgs args = {.x = x.view(),
                     .weight = weight.ForCpu(),
                     .out = expected.data(),
                     .out_stride = stride,
                     .tokens = tokens,
                     .accumulate = random() % 2 == 0};
  PlainKernels().matmul(args, 0, weight.rows, 0, tokens);
  args.weight = weight.ForCuda();
  args.out = actual.data();
  LaunchMatMul(launcher, args);
  const std::string what = absl::StrCat(std::string(WeightFormatName(weight.format)), " rows ",
                                        weight.rows, " cols ", weight.cols, " tokens ", tokens);
  ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected, actual.values(), what));
  actual.ExpectGuards(what);
}

struct Shape {
  int64_t rows, cols, tokens;
};

class CudaMatMul : public testing::TestWithParam<WeightFormat> {
 protected:
  void ExpectPlain(const Shape& shape) {
    const int64_t cols = WholeBlocks(GetParam(), shape.cols);
    const BothMatrices weight(random_, GetParam(), shape.rows, cols);
    auto x = QuantizedRows(RandomFloats(random_, shape.tokens * cols), shape.tokens, cols);
    ExpectPlainProduct(random_, launcher_, weight, x, shape.tokens);
  }

  std::mt19937_64 random_{TestSeed()};
  ChosenLauncher launcher_;
};

class CudaFloatMatMul : public CudaMatMul {};
class CudaQuantizedMatMul : public CudaMatMul {};

std::string FormatName(const testing::TestParamInfo<WeightFormat>& info) {
  return std::string(WeightFormatName(info.param));
}
INSTANTIATE_TEST_SUITE_P(Formats, CudaFloatMatMul, testing::ValuesIn(kFloatFormats), FormatName);
INSTANTIATE_TEST_SUITE_P(Formats, CudaQuantizedMatMul, testing::ValuesIn(kQuantizedFormats),
                         FormatName);

TEST_P(CudaQuantizedMatMul, EqualsPlainForFewTokensAtOddShapes) {
  for (const Shape& shape : {Shape{1, 32, 1},
                             {40, 160, 2},
                             {17, 96, 3},
                             {33, 288, 8},
                             {16, 64, 9},
                             {19, 416, 16},
                             {50, 128, 17},
                             {15, 32, 32}}) {
    ASSERT_NO_FATAL_FAILURE(ExpectPlain(shape));
  }
}

// Shared memory of a thread block on sm_86 and sm_89.
TEST_P(CudaQuantizedMatMul, EveryNumberOfTokensFitsNinetyNineKiB) {
  launcher_.set_max_shared_bytes(99 << 10);
  for (const Shape& shape :
       {Shape{17, 96, 1}, {17, 96, 3}, {19, 416, 16}, {50, 128, 17}, {15, 32, 40}}) {
    ASSERT_NO_FATAL_FAILURE(ExpectPlain(shape));
  }
  EXPECT_LE(launcher_.most_shared_bytes_launched(), 99u << 10);
}

// Long rows need several windows of 512 or 1024 columns, and more of them than fit in shared
// memory. A warp has 256 columns of a window. The last window may be short: warps then have no
// columns, one group, one block of 128 columns and a group of the next.
TEST_P(CudaQuantizedMatMul, EqualsPlainForFewTokensAndLongRows) {
  for (const Shape& shape : {Shape{17, 1024, 1},
                             {18, 2048 + 32, 1},
                             {3, 4096 + 256 + 128, 1},
                             {16, 7168 + 512 + 160, 1},
                             {16, 2080, 5},
                             {33, 4096 + 256 + 160, 8},
                             {5, 3328, 11},
                             {7, 2560 + 128, 13},
                             {16, 1536 + 160, 31}}) {
    ASSERT_NO_FATAL_FAILURE(ExpectPlain(shape));
  }
}

// One token fills eight columns of the MMA with groups, so all their sums must keep apart.
TEST_P(CudaQuantizedMatMul, OneTokenEqualsPlainAtOddShapes) {
  for (int64_t groups = 1; groups <= 17; ++groups) {
    ASSERT_NO_FATAL_FAILURE(ExpectPlain({15 + groups, 32 * groups, 1}));
  }
}

TEST_P(CudaQuantizedMatMul, EqualsPlainForManyTokensAtOddShapes) {
  for (const Shape& shape :
       {Shape{1, 32, 33}, {17, 160, 64}, {150, 96, 65}, {129, 288, 40}, {64, 640, 67}}) {
    ASSERT_NO_FATAL_FAILURE(ExpectPlain(shape));
  }
}

// Every weight and activation byte takes part, −128 too, which rows with a NaN can contain.
TEST_P(CudaQuantizedMatMul, IntegerSumsAreExactAtTheExtremesOfTheirTypes) {
  for (const int value : {-128, -127, 127, 0}) {
    for (const int64_t tokens : {1, 3, 40}) {
      const int64_t cols = WholeBlocks(GetParam(), 64);
      const BothMatrices weight(random_, GetParam(), 20, cols);
      OwnedActivations x(tokens, cols);
      for (auto& scale : x.scale) scale = 1;
      for (auto& sum : x.scaled_sum) sum = 1;
      for (auto& q : x.q8) q = static_cast<int8_t>(random_() % 16 == 0 ? random_() : value);
      ASSERT_NO_FATAL_FAILURE(ExpectPlainProduct(random_, launcher_, weight, x, tokens));
    }
  }
}

TEST_P(CudaQuantizedMatMul, AllWeightBytesAtTheirLowestAgainstAllActivationsAtTheirs) {
  const int64_t cols = WholeBlocks(GetParam(), 64);
  for (const int byte : {0x80, 0x7f, 0xff, 0x00}) {
    std::vector<std::byte> source = RandomGgufMatrix(random_, GetParam(), 16, cols);
    const GgufBlock block = GgufBlockOf(GetParam());
    const uint16_t one = F32ToF16(1.0f);
    std::memset(source.data(), byte, source.size());
    for (size_t at = 0; at < source.size(); at += block.bytes) {
      for (size_t h = 0; h < block.headers; ++h) {
        std::memcpy(source.data() + at + block.headers_at + 2 * h, &one, 2);
      }
    }
    BothMatrices weight(random_, GetParam(), 16, cols);
    PackMatrixRows(GetParam(), 16, cols, source.data(), weight.cpu.data());
    PackDeviceMatrix(GetParam(), 16, cols, source.data(), weight.cuda.data());
    for (const int64_t tokens : {1, 2, 33}) {
      OwnedActivations x(tokens, cols);
      for (auto& scale : x.scale) scale = 1;
      for (auto& q : x.q8) q = -128;
      ASSERT_NO_FATAL_FAILURE(ExpectPlainProduct(random_, launcher_, weight, x, tokens));
    }
  }
}

// A minimum term that is too small for f32 makes −0 of the accumulator. Groups of the padding would
// make +0 of it.
TEST_P(CudaQuantizedMatMul, PaddingDoesNotChangeTheSignOfZero) {
  const int64_t cols = WholeBlocks(GetParam(), 32);
  std::vector<std::byte> source = RandomGgufMatrix(random_, GetParam(), 16, cols);
  const GgufBlock block = GgufBlockOf(GetParam());
  const uint16_t smallest = 1;
  for (size_t at = 0; at < source.size(); at += block.bytes) {
    for (size_t h = 0; h < block.headers; ++h) {
      std::memcpy(source.data() + at + block.headers_at + 2 * h, &smallest, 2);
    }
  }
  BothMatrices weight(random_, GetParam(), 16, cols);
  PackMatrixRows(GetParam(), 16, cols, source.data(), weight.cpu.data());
  PackDeviceMatrix(GetParam(), 16, cols, source.data(), weight.cuda.data());
  // Half of the products add to random outputs, which hides the sign.
  for (const int64_t tokens : {1, 1, 1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 33, 33, 33, 33}) {
    OwnedActivations x(tokens, cols);
    for (auto& sum : x.scaled_sum) sum = -std::numeric_limits<float>::denorm_min();
    ASSERT_NO_FATAL_FAILURE(ExpectPlainProduct(random_, launcher_, weight, x, tokens));
  }
}

TEST_P(CudaQuantizedMatMul, EqualsPlainForExtremeInfiniteAndNanActivations) {
  for (const int64_t tokens : {5, 35}) {
    const int64_t cols = WholeBlocks(GetParam(), 96);
    const BothMatrices weight(random_, GetParam(), 20, cols);
    auto values = ExtremeFloats(random_, tokens * cols);
    values[5] = std::numeric_limits<float>::infinity();
    values[3 * cols + 40] = std::numeric_limits<float>::quiet_NaN();
    values[4 * cols + 40] = -std::numeric_limits<float>::infinity();
    auto x = QuantizedRows(values, tokens, cols);
    ASSERT_NO_FATAL_FAILURE(ExpectPlainProduct(random_, launcher_, weight, x, tokens));
  }
}

TEST_P(CudaQuantizedMatMul, GatedProductsEqualPlain) {
  for (const Shape& shape : {Shape{32, 64, 3}, {96, 96, 33}, {64, 160, 70}, {20, 64, 40}}) {
    const int64_t gates = shape.rows, tokens = shape.tokens;
    const int64_t cols = WholeBlocks(GetParam(), shape.cols);
    const BothMatrices weight(random_, GetParam(), 2 * gates, cols);
    auto x = QuantizedRows(RandomFloats(random_, tokens * cols), tokens, cols);
    std::vector<float> products(tokens * 2 * gates);
    OwnedActivations expected(tokens, gates);
    GuardedActivations actual(tokens, gates);
    Activations plain_out = expected.view(), out = actual.view();
    if (gates % 32 != 0) plain_out.q8 = out.q8 = nullptr;
    GatedMatMulArgs args;
    args.product = {.x = x.view(),
                    .weight = weight.ForCpu(),
                    .out = products.data(),
                    .out_stride = 2 * gates,
                    .tokens = tokens};
    PlainKernels().matmul(args.product, 0, 2 * gates, 0, tokens);
    PlainKernels().silu_mul({products.data(), tokens, gates, plain_out}, 0, tokens);
    args.product.weight = weight.ForCuda();
    args.out = out;
    LaunchGatedMatMul(launcher_, args);
    ASSERT_NO_FATAL_FAILURE(actual.ExpectEqual(
        expected, absl::StrCat("gates ", gates, " cols ", cols, " tokens ", tokens)));
  }
}

TEST_P(CudaFloatMatMul, EqualsPlainAtOddShapes) {
  for (const Shape& shape : {Shape{1, 1, 1},
                             {33, 70, 2},
                             {64, 64, 3},
                             {5, 13, 6},
                             {32, 129, 8},
                             {40, 31, 17},
                             {31, 576, 34}}) {
    ASSERT_NO_FATAL_FAILURE(ExpectPlain(shape));
  }
}

TEST_P(CudaFloatMatMul, EqualsPlainForExtremeInfiniteAndNanActivations) {
  const int64_t cols = 100, tokens = 9;
  const BothMatrices weight(random_, GetParam(), 34, cols);
  OwnedActivations x(tokens, cols);
  x.f32 = ExtremeFloats(random_, tokens * cols);
  x.f32[5] = std::numeric_limits<float>::infinity();
  x.f32[3 * cols + 40] = std::numeric_limits<float>::quiet_NaN();
  ExpectPlainProduct(random_, launcher_, weight, x, tokens);
}

// The bits of a token do not depend on the number of tokens, though other kernels run.
TEST_P(CudaQuantizedMatMul, ATokenHasTheSameBitsInEveryBatch) {
  const int64_t cols = WholeBlocks(GetParam(), 160), rows = 24;
  const BothMatrices weight(random_, GetParam(), rows, cols);
  auto x = QuantizedRows(RandomFloats(random_, 66 * cols), 66, cols);
  ExpectSameBitsInEveryBatch({1, 9, 20, 66}, rows, [&](int64_t tokens, float* out) {
    LaunchMatMul(launcher_, {.x = x.view(),
                             .weight = weight.ForCuda(),
                             .out = out,
                             .out_stride = rows,
                             .tokens = tokens});
  });
}

// Blocks in any order give the same bits, and a kernel reads no shared memory that it has not
// written: the emulator fills it with NaNs.
TEST_P(CudaQuantizedMatMul, EveryOrderOfBlocksAndThreadsGivesTheSameBits) {
  for (const gpu_emulator::ExecutionOrder order :
       {gpu_emulator::ExecutionOrder::kReverse, gpu_emulator::ExecutionOrder::kSeeded}) {
    gpu_emulator::ExecutionRules rules;
    rules.order = order;
    ChosenLauncher launcher(rules);
    for (const int64_t tokens : {1, 10, 65}) {
      const int64_t cols = WholeBlocks(GetParam(), 96);
      const BothMatrices weight(random_, GetParam(), 50, cols);
      auto x = QuantizedRows(RandomFloats(random_, tokens * cols), tokens, cols);
      ASSERT_NO_FATAL_FAILURE(ExpectPlainProduct(random_, launcher, weight, x, tokens));
    }
  }
}

}  // namespace
}  // namespace baton
