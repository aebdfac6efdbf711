// Compares the bits of t1's matrix products on CUDA with their twins (NUMERICS_T1 §3).
#include "kernels/cuda/launch_tensor_matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "kernels/tensor_core/fused_dot.h"
#include "kernels/tensor_core/tensor_core_matmul.h"
#include "tests/cuda/chosen_launcher.h"
#include "tests/cuda/every_batch.h"
#include "tests/cuda/guarded_rows.h"

namespace baton {
namespace {

constexpr WeightFormat kHalfFormats[] = {WeightFormat::kBF16, WeightFormat::kF16};

struct Shape {
  int64_t rows, cols, tokens;
};

// Makes some weights infinite, NaN, subnormal or the largest of their type.
void PlantSpecialWeights(std::mt19937_64& random, WeightFormat format, std::byte* source,
                         int64_t count) {
  const uint16_t infinity = format == WeightFormat::kBF16 ? 0x7f80 : 0x7c00;
  const uint16_t specials[] = {infinity,
                               static_cast<uint16_t>(infinity | 0x8000),
                               static_cast<uint16_t>(infinity + 1),
                               static_cast<uint16_t>(infinity - 1),
                               static_cast<uint16_t>((infinity - 1) | 0x8000),
                               1,
                               0x8000};
  for (int64_t i = 0; i < count; i += 50) {
    std::memcpy(source + 2 * (i + static_cast<int64_t>(random() % 50) % (count - i)),
                &specials[random() % std::size(specials)], 2);
  }
}

// The kernels of a weight format and of t1-sm80 or t1-sm90.
class CudaTensorMatMul : public testing::TestWithParam<std::tuple<WeightFormat, Numerics>> {
 protected:
  static WeightFormat format() { return std::get<0>(GetParam()); }
  static Numerics numerics() { return std::get<1>(GetParam()); }
  // The emulator has the tensor cores of the numerics.
  static gpu_emulator::ExecutionRules Rules(gpu_emulator::ExecutionRules rules = {}) {
    rules.tensor_core = numerics() == Numerics::kT1Sm80 ? gpu_emulator::TensorCore::kAmpere
                                                        : gpu_emulator::TensorCore::kHopper;
    return rules;
  }
  // A GPU has its own. Those of compute capability 9.0 run the kernels of both numerics.
  static const DotModel& model() {
    return DotModelOf(ChosenDeviceName().empty() ? numerics()
                                                 : ChosenDevice::Get().device().numerics());
  }

  void SetUp() override {
    if (ChosenDeviceName().empty()) return;
    const Numerics device = ChosenDevice::Get().device().numerics();
    if (!IsT1(device)) {
      GTEST_SKIP() << "not run: the GPU has neither compute capability 8.0 nor 9.0";
    }
    if (T1ComputeCapability(numerics()) > T1ComputeCapability(device)) {
      GTEST_SKIP() << "not run: the GPU does not have compute capability 9.0";
    }
  }

  void Launch(KernelLauncher& launcher, const MatMulArgs& args) {
    LaunchTensorMatMul(launcher, args, numerics());
  }

  static BothMatrices RandomMatrix(std::mt19937_64& random, int64_t rows, int64_t cols,
                                   bool special) {
    BothMatrices weight(random, format(), rows, cols);
    if (!special) return weight;
    auto source = RandomGgufMatrix(random, format(), rows, cols);
    PlantSpecialWeights(random, format(), source.data(), rows * cols);
    PackMatrixRows(format(), rows, cols, source.data(), weight.cpu.data());
    PackDeviceMatrix(format(), rows, cols, source.data(), weight.cuda.data());
    return weight;
  }

  // Calls launch(args) and compares with the twin, with a gap between rows of the output.
  template <typename Launch>
  void ExpectTwin(const Shape& shape, const BothMatrices& weight, const std::vector<float>& values,
                  const Launch& launch) {
    std::vector<float> x = values;
    const int64_t stride = shape.rows + static_cast<int64_t>(random_() % 4);
    const std::vector<float> initial = RandomFloats(random_, shape.tokens * stride);
    std::vector<float> expected = initial;
    Guarded<float> actual(initial);
    MatMulArgs args = {.x = {.f32 = x.data()},
                       .weight = weight.ForCpu(),
                       .out = expected.data(),
                       .out_stride = stride,
                       .tokens = shape.tokens,
                       .accumulate = random_() % 2 == 0};
    TensorCoreMatMul(args, 0, shape.rows, 0, shape.tokens, model());
    args.weight = weight.ForCuda();
    args.out = actual.data();
    launch(args);
    const std::string what =
        absl::StrCat("rows ", shape.rows, " cols ", shape.cols, " tokens ", shape.tokens);
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected, actual.values(), what));
    actual.ExpectGuards(what);
  }
  void ExpectTwin(const Shape& shape, bool special = false) {
    ExpectTwin(shape, RandomMatrix(random_, shape.rows, shape.cols, special),
               RandomFloats(random_, shape.tokens * shape.cols),
               [this](const MatMulArgs& args) { Launch(launcher_, args); });
  }

  std::mt19937_64 random_{TestSeed()};
  ChosenLauncher launcher_{Rules()};
};

INSTANTIATE_TEST_SUITE_P(Formats, CudaTensorMatMul,
                         testing::Combine(testing::ValuesIn(kHalfFormats),
                                          testing::Values(Numerics::kT1Sm80, Numerics::kT1Sm90)),
                         [](const auto& info) {
                           const bool sm80 = std::get<1>(info.param) == Numerics::kT1Sm80;
                           return std::string(WeightFormatName(std::get<0>(info.param))) +
                                  (sm80 ? "_sm80" : "_sm90");
                         });

TEST_P(CudaTensorMatMul, EqualsTheTwinForFewTokensAtOddShapes) {
  for (const Shape& shape : {Shape{1, 4, 1},
                             {7, 64, 1},
                             {17, 68, 2},
                             {40, 128, 3},
                             {33, 260, 8},
                             {31, 132, 7},
                             {64, 124, 4}}) {
    ASSERT_NO_FATAL_FAILURE(ExpectTwin(shape));
  }
}

// More than 768 columns fill the ring of six stages; the last stage may be short.
TEST_P(CudaTensorMatMul, EqualsTheTwinForFewTokensAndLongRows) {
  for (const Shape& shape : {Shape{17, 1024, 1}, {16, 1668, 5}}) {
    ASSERT_NO_FATAL_FAILURE(ExpectTwin(shape));
  }
}

// Rows of activations that are not a multiple of 16 bytes are rounded by a kernel of their own.
TEST_P(CudaTensorMatMul, EqualsTheTwinForFewTokensWithUnalignedRows) {
  for (const Shape& shape : {Shape{1, 1, 1}, {19, 70, 3}, {9, 131, 8}}) {
    ASSERT_NO_FATAL_FAILURE(ExpectTwin(shape));
  }
}

TEST_P(CudaTensorMatMul, EqualsTheTwinForMoreTokensAtOddShapes) {
  for (const Shape& shape : {Shape{1, 4, 9}, {70, 100, 17}, {72, 192, 64}, {24, 65, 66}}) {
    ASSERT_NO_FATAL_FAILURE(ExpectTwin(shape));
  }
}

// With one multiprocessor a block takes several tiles, and its ring goes round.
TEST_P(CudaTensorMatMul, EveryTileEqualsTheTwin) {
  ChosenLauncher one(Rules(), 1);
  for (const TensorTile& tile : kTensorTiles) {
    const int stages =
        numerics() == Numerics::kT1Sm80 ? Sm80TensorTile{tile}.stages() : tile.stages();
    const Shape shape = {tile.rows() + 9, 64 * stages + 70, tile.tokens + 3};
    const Shape small = {5, 30, 2};
    for (const Shape& shape : {shape, small}) {
      SCOPED_TRACE(absl::StrCat(tile.rows(), "x", tile.tokens));
      ASSERT_NO_FATAL_FAILURE(
          ExpectTwin(shape, RandomMatrix(random_, shape.rows, shape.cols, false),
                     RandomFloats(random_, shape.tokens * shape.cols), [&](const MatMulArgs& args) {
                       LaunchTensorMatMulTile(one, args, /*gated=*/false, tile, numerics());
                     }));
    }
  }
}

TEST_P(CudaTensorMatMul, EqualsTheTwinForSpecialWeightsAndActivations) {
  for (const int64_t tokens : {5, 11}) {
    const Shape shape = {34, 200, tokens};
    auto values = ExtremeFloats(random_, shape.tokens * shape.cols);
    for (const uint32_t bits : {0x7f800000u, 0xff800000u, 0x7fc12345u, 0xffffffffu, 0x7f7fffffu,
                                0x477fefffu, 0x477ff000u, 0x00000001u, 0x33000001u}) {
      values[random_() % values.size()] = std::bit_cast<float>(bits);
    }
    ASSERT_NO_FATAL_FAILURE(
        ExpectTwin(shape, RandomMatrix(random_, shape.rows, shape.cols, true), values,
                   [this](const MatMulArgs& args) { Launch(launcher_, args); }));
  }
}

TEST_P(CudaTensorMatMul, GatedProductsEqualTheTwin) {
  // The gate is fused, except for 20 columns and where int8 activations are wanted too.
  for (const auto& [shape, int8] : {std::pair{Shape{8, 64, 1}, false},
                                    {{72, 196, 3}, false},
                                    {{20, 64, 4}, false},
                                    {{32, 64, 2}, true},
                                    {{40, 100, 70}, false},
                                    {{64, 70, 12}, true}}) {
    const int64_t gates = shape.rows, cols = shape.cols, tokens = shape.tokens;
    const BothMatrices weight = RandomMatrix(random_, 2 * gates, cols, false);
    std::vector<float> x = RandomFloats(random_, tokens * cols);
    std::vector<float> products(tokens * 2 * gates);
    OwnedActivations expected(tokens, gates);
    GuardedActivations actual(tokens, gates);
    Activations plain_out = expected.view(), out = actual.view();
    if (!int8) plain_out.q8 = out.q8 = nullptr;
    GatedMatMulArgs args;
    args.product = {.x = {.f32 = x.data()},
                    .weight = weight.ForCpu(),
                    .out = products.data(),
                    .out_stride = 2 * gates,
                    .tokens = tokens};
    TensorCoreMatMul(args.product, 0, 2 * gates, 0, tokens, model());
    PlainKernels().silu_mul({products.data(), tokens, gates, plain_out}, 0, tokens);
    args.product.weight = weight.ForCuda();
    args.out = out;
    LaunchGatedTensorMatMul(launcher_, args, numerics());
    ASSERT_NO_FATAL_FAILURE(actual.ExpectEqual(
        expected, absl::StrCat("gates ", gates, " cols ", cols, " tokens ", tokens)));
  }
}

TEST_P(CudaTensorMatMul, EveryGatedTileEqualsTheTwin) {
  const int64_t gates = 72, cols = 130, tokens = 10;
  for (const TensorTile& tile : kTensorTiles) {
    const BothMatrices weight = RandomMatrix(random_, 2 * gates, cols, false);
    std::vector<float> x = RandomFloats(random_, tokens * cols);
    std::vector<float> products(tokens * 2 * gates), expected(tokens * gates);
    MatMulArgs args = {.x = {.f32 = x.data()},
                       .weight = weight.ForCpu(),
                       .out = products.data(),
                       .out_stride = 2 * gates,
                       .tokens = tokens};
    TensorCoreMatMul(args, 0, 2 * gates, 0, tokens, model());
    PlainKernels().silu_mul({products.data(), tokens, gates, {.f32 = expected.data()}}, 0, tokens);
    Guarded<float> actual(expected.size());
    args.weight = weight.ForCuda();
    args.out = actual.data();
    args.out_stride = gates;
    LaunchTensorMatMulTile(launcher_, args, /*gated=*/true, tile, numerics());
    const std::string what = absl::StrCat(tile.rows(), "x", tile.tokens);
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected, actual.values(), what));
    actual.ExpectGuards(what);
  }
}

// The bits of a token do not depend on the number of tokens, though other kernels run.
TEST_P(CudaTensorMatMul, ATokenHasTheSameBitsInEveryBatch) {
  const int64_t cols = 160, rows = 24;
  const BothMatrices weight = RandomMatrix(random_, rows, cols, false);
  std::vector<float> x = RandomFloats(random_, 130 * cols);
  ExpectSameBitsInEveryBatch({1, 8, 9, 66, 130}, rows, [&](int64_t tokens, float* out) {
    Launch(launcher_, {.x = {.f32 = x.data()},
                       .weight = weight.ForCuda(),
                       .out = out,
                       .out_stride = rows,
                       .tokens = tokens});
  });
}

// The two numerics differ, so a kernel that ran on the wrong tensor cores would be noticed.
TEST_P(CudaTensorMatMul, AnotherTensorCoreWouldBeNoticed) {
  const int64_t cols = 256, rows = 24, tokens = 12;
  const BothMatrices weight = RandomMatrix(random_, rows, cols, false);
  std::vector<float> x = RandomFloats(random_, tokens * cols), out(tokens * rows), other(out);
  MatMulArgs args = {.x = {.f32 = x.data()},
                     .weight = weight.ForCpu(),
                     .out = other.data(),
                     .out_stride = rows,
                     .tokens = tokens};
  TensorCoreMatMul(args, 0, rows, 0, tokens, model() == kHopperDot ? kAmpereDot : kHopperDot);
  args.weight = weight.ForCuda();
  args.out = out.data();
  Launch(launcher_, args);
  EXPECT_NE(out, other);
}

TEST_P(CudaTensorMatMul, UnalignedOperandsAreRefusedBeforeAnyLaunch) {
  const int64_t rows = 16, cols = 64;
  const BothMatrices weight = RandomMatrix(random_, rows, cols, false);
  alignas(16) float x[9 * 64 + 1] = {};
  alignas(16) float out[9 * 16];
  for (const int64_t tokens : {1, 9}) {
    const MatMulArgs right = {.x = {.f32 = x},
                              .weight = weight.ForCuda(),
                              .out = out,
                              .out_stride = rows,
                              .tokens = tokens};
    MatMulArgs wrong = right;
    wrong.x.f32 = x + 1;
    EXPECT_DEATH(Launch(launcher_, wrong), "activations.*not aligned to 16 bytes");
    wrong = right;
    wrong.weight.data += 8;
    EXPECT_DEATH(Launch(launcher_, wrong), "weights.*not aligned to 16 bytes");
  }
}

// A kernel reads no shared memory that it has not written: the emulator fills it with NaNs.
TEST_P(CudaTensorMatMul, EveryOrderOfBlocksAndCopiesGivesTheSameBits) {
  for (const gpu_emulator::ExecutionOrder order :
       {gpu_emulator::ExecutionOrder::kReverse, gpu_emulator::ExecutionOrder::kSeeded}) {
    gpu_emulator::ExecutionRules rules;
    rules.order = order;
    rules.landing = order == gpu_emulator::ExecutionOrder::kReverse
                        ? gpu_emulator::CopyLanding::kEarly
                        : gpu_emulator::CopyLanding::kSeeded;
    ChosenLauncher launcher(Rules(rules));
    for (const Shape& shape : {Shape{50, 900, 2}, {70, 450, 10}}) {
      ASSERT_NO_FATAL_FAILURE(ExpectTwin(shape,
                                         RandomMatrix(random_, shape.rows, shape.cols, false),
                                         RandomFloats(random_, shape.tokens * shape.cols),
                                         [&](const MatMulArgs& args) { Launch(launcher, args); }));
    }
  }
}

TEST(TensorTiles, LargeTilesServeManyTokensAndSmallOnesKeepAllMultiprocessorsBusy) {
  const auto fastest = [](int64_t rows, int64_t tokens) {
    const TensorTile tile = FastestTensorTile(rows, tokens, 132, Numerics::kT1Sm90);
    return std::pair(tile.rows(), tile.tokens);
  };
  EXPECT_EQ(fastest(4096, 2048), std::pair(128, 256));
  EXPECT_EQ(fastest(28672, 2048), std::pair(128, 256));
  EXPECT_EQ(fastest(4096, 16), std::pair(64, 64));
  EXPECT_EQ(fastest(4096, 128), std::pair(64, 128));
}

TEST(TensorTiles, EveryTileFitsTheSharedMemoryOfItsComputeCapability) {
  for (const TensorTile& tile : kTensorTiles) {
    const Sm80TensorTile sm80 = {tile};
    EXPECT_GE(sm80.stages(), 3);
    EXPECT_LE(tile.blocks() * (sm80.shared_bytes() + 1024), 164 << 10);
    EXPECT_LE(tile.blocks() * (tile.shared_bytes() + 1024), 228 << 10);
  }
}

}  // namespace
}  // namespace baton
