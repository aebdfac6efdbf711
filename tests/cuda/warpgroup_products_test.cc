// wgmma: fragments and shared-memory layouts of the PTX ISA, written here element by element, and
// when products run.
#include "tests/gpu_emulator/warpgroup_products.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/warpgroup_mma.cuh"
#include "kernels/tensor_core/fused_dot.h"
#include "tests/cuda/matrix_layout.h"
#include "tests/cuda/run_kernel.h"

namespace baton {
namespace {

using gpu_emulator::CopyLanding;
using gpu_emulator::Executor;
using testing::HasSubstr;

constexpr int kDepth = 16;
constexpr uint32_t kABytes = 16 << 10;
constexpr uint32_t kShared = kABytes + (32 << 10);

using Layout = MatrixLayout;

struct ProductParams {
  const uint8_t* image;  // [kShared]: A's memory, then B's
  const unsigned* a;     // [128, 4]
  float* d;              // [128, cols / 2], read and written
  Layout a_layout, b_layout;
  bool registers;
  bool f16;
  float* unwaited;  // [128]: d[0] between issue and wait
};

template <int kCols, bool kRowsFastest>
void Product(const ProductParams& p) {
  auto* shared = SharedMemory<uint8_t>();
  for (uint32_t i = threadIdx.x; i < kShared; i += 128) shared[i] = p.image[i];
  FenceProxyAsync();
  __syncthreads();
  float d[kCols / 2];
  for (int i = 0; i < kCols / 2; ++i) d[i] = p.d[threadIdx.x * (kCols / 2) + i];
  unsigned a[4];
  for (int i = 0; i < 4; ++i) a[i] = p.a[threadIdx.x * 4 + i];
  const uint64_t a_matrix =
      MatrixDescriptor(shared, p.a_layout.leading, p.a_layout.stride, p.a_layout.swizzle);
  const uint64_t b_matrix =
      MatrixDescriptor(shared + kABytes, p.b_layout.leading, p.b_layout.stride, p.b_layout.swizzle);
  FenceMatrixRegisters(d, a);
  if (p.registers && p.f16) WarpgroupMmaF16<kCols, kRowsFastest>(d, a, b_matrix, true);
  if (p.registers && !p.f16) WarpgroupMmaBf16<kCols, kRowsFastest>(d, a, b_matrix, true);
  if (!p.registers && p.f16) WarpgroupMmaF16<kCols, kRowsFastest>(d, a_matrix, b_matrix, true);
  if (!p.registers && !p.f16) WarpgroupMmaBf16<kCols, kRowsFastest>(d, a_matrix, b_matrix, true);
  CommitMatrixProducts();
  p.unwaited[threadIdx.x] = d[0];
  WaitMatrixProducts<0>(d, a);
  for (int i = 0; i < kCols / 2; ++i) p.d[threadIdx.x * (kCols / 2) + i] = d[i];
}

void Product64(const ProductParams p) { Product<64, false>(p); }
void Product64RowsFastest(const ProductParams p) { Product<64, true>(p); }
void Product128RowsFastest(const ProductParams p) { Product<128, true>(p); }
void Product256(const ProductParams p) { Product<256, false>(p); }

constexpr Layout kPlain = {false, SharedSwizzle::kNone, 128, 256};

template <auto kKernel>
void Check(int cols, Layout a_layout, Layout b_layout, bool registers, bool f16,
           CopyLanding landing = CopyLanding::kLate) {
  std::mt19937 random(static_cast<unsigned>(cols) + registers + 2 * f16);
  const auto draw = [&] { return static_cast<uint16_t>(random() & 0xbfff); };
  std::vector<uint16_t> a(64 * kDepth), b(cols * kDepth);
  std::vector<uint8_t> image(kShared, 0x7f);
  for (int row = 0; row < 64; ++row) {
    for (int k = 0; k < kDepth; ++k) {
      a[row * kDepth + k] = draw();
      std::memcpy(&image[OffsetIn(a_layout, row, k)], &a[row * kDepth + k], 2);
    }
  }
  for (int col = 0; col < cols; ++col) {
    for (int k = 0; k < kDepth; ++k) {
      b[col * kDepth + k] = draw();
      std::memcpy(&image[kABytes + OffsetIn(b_layout, col, k)], &b[col * kDepth + k], 2);
    }
  }
  // PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16".
  std::vector<unsigned> fragments(128 * 4);
  for (int t = 0; t < 128; ++t) {
    for (int i = 0; i < 8; ++i) {
      const int row = 16 * (t / 32) + t % 32 / 4 + ((i / 2) % 2 == 0 ? 0 : 8);
      const int k = t % 4 * 2 + i % 2 + (i < 4 ? 0 : 8);
      fragments[t * 4 + i / 2] |= unsigned{a[row * kDepth + k]} << (16 * (i % 2));
    }
  }
  std::vector<float> d(128 * cols / 2), unwaited(128);
  for (size_t i = 0; i < d.size(); ++i) d[i] = 0.25f * static_cast<float>(i % 97);
  const std::vector<float> start = d;
  Executor executor({.landing = landing});
  ASSERT_EQ(RunAsKernel<kKernel>(executor, {{1, 1, 1}, {128, 1, 1}, kShared},
                                 ProductParams{image.data(), fragments.data(), d.data(), a_layout,
                                               b_layout, registers, f16, unwaited.data()}),
            absl::OkStatus());
  for (int t = 0; t < 128; ++t) {
    for (int i = 0; i < cols / 2; ++i) {
      const int row = 16 * (t / 32) + t % 32 / 4 + 8 * (i / 2 % 2);
      const int col = 8 * (i / 4) + t % 4 * 2 + i % 2;
      const float want =
          PlainFusedDot(kHopperDot, f16 ? HalfType::kF16 : HalfType::kBF16, &a[row * kDepth],
                        &b[col * kDepth], kDepth, start[t * (cols / 2) + i]);
      ASSERT_EQ(__float_as_uint(d[t * (cols / 2) + i]), __float_as_uint(want))
          << "row " << row << " col " << col;
    }
  }
  EXPECT_THAT(unwaited, testing::Each(testing::IsNan()));
}

TEST(WarpgroupProducts, ReadBothMatricesWithTheSummedDimensionFastest) {
  for (const Layout& layout : {kPlain, Layout{false, SharedSwizzle::k32Bytes, 16, 256},
                               Layout{false, SharedSwizzle::k64Bytes, 16, 512},
                               Layout{false, SharedSwizzle::k128Bytes, 16, 1024}}) {
    SCOPED_TRACE(static_cast<int>(layout.swizzle));
    Check<&Product64>(64, layout, layout, false, false);
  }
  Check<&Product256>(256, kPlain, {false, SharedSwizzle::k128Bytes, 16, 1024}, false, true);
}

TEST(WarpgroupProducts, ReadBWithItsColumnsFastest) {
  // Core matrices: 64 columns are 8 of them, k is 2. Swizzled: atoms of 8 k times S bytes.
  for (const Layout& layout : {Layout{true, SharedSwizzle::kNone, 1024, 128},
                               Layout{true, SharedSwizzle::k32Bytes, 512, 256},
                               Layout{true, SharedSwizzle::k64Bytes, 1024, 512},
                               Layout{true, SharedSwizzle::k128Bytes, 2048, 1024}}) {
    SCOPED_TRACE(static_cast<int>(layout.swizzle));
    Check<&Product64RowsFastest>(64, kPlain, layout, false, false);
    Check<&Product128RowsFastest>(128, kPlain,
                                  layout.swizzle == SharedSwizzle::kNone
                                      ? Layout{true, SharedSwizzle::kNone, 2048, 128}
                                      : layout,
                                  true, true);
  }
}

TEST(WarpgroupProducts, TakeAFromRegisters) {
  Check<&Product64>(64, kPlain, kPlain, true, false);
  Check<&Product64>(64, kPlain, kPlain, true, true, CopyLanding::kEarly);
}

struct ChainParams {
  float* d;         // [128, 32]
  float* unwaited;  // [128]: d[0] when a later product still adds to it
  int fault;
};

// Three products in two groups onto the same sums; matrices of ones.
void Chain(const ChainParams p) {
  auto* shared = SharedMemory<uint16_t>();
  for (int i = static_cast<int>(threadIdx.x); i < 2048; i += 128) shared[i] = 0x3f80;  // bf16 1
  if (p.fault != 8) FenceProxyAsync();
  __syncthreads();
  const uint64_t ones = MatrixDescriptor(shared, 128, 256, SharedSwizzle::kNone);
  float d[32] = {};
  const unsigned a[4] = {};
  if (p.fault == 3) FenceMatrixRegisters();
  if (p.fault != 3) FenceMatrixRegisters(d);
  if (p.fault == 4) d[5] = 1.0f;
  if (p.fault == 5) WarpgroupMmaBf16<64, false>(d, a, ones, true);
  WarpgroupMmaBf16<64, false>(d, ones, ones, false);
  if (p.fault == 6) d[5] = 1.0f;
  WarpgroupMmaBf16<64, false>(d, ones, ones, true);
  CommitMatrixProducts();
  if (p.fault == 9) shared[threadIdx.x] = 0;
  if (p.fault == 1 && threadIdx.x >= 64) return;
  if (p.fault == 2 && threadIdx.x >= 64) {
    WarpgroupMmaBf16<64, false>(d, ones, ones, false);
  } else {
    WarpgroupMmaBf16<64, false>(d, ones, ones, true);
  }
  CommitMatrixProducts();
  WaitMatrixProducts<1>();
  p.unwaited[threadIdx.x] = d[0];
  if (p.fault == 7) WaitMatrixProducts<0>();
  if (p.fault != 7) WaitMatrixProducts<0>(d);
  for (int i = 0; i < 32; ++i) p.d[threadIdx.x * 32 + i] = d[i];
}

// The same with `a` in registers, which the wait does not name.
void LosesItsRegisters(const ChainParams p) {
  auto* shared = SharedMemory<uint16_t>();
  const uint64_t b = MatrixDescriptor(shared, 128, 256, SharedSwizzle::kNone);
  float d[32] = {};
  const unsigned a[4] = {};
  FenceMatrixRegisters(d, a);
  WarpgroupMmaBf16<64, false>(d, a, b, false);
  CommitMatrixProducts();
  WaitMatrixProducts<0>(d);
  p.d[threadIdx.x] = d[0];
}

TEST(WarpgroupProducts, ProductsOfSeveralGroupsAddUp) {
  std::vector<float> d(128 * 32), unwaited(128);
  Executor executor;
  ASSERT_EQ(RunAsKernel<&Chain>(executor, {{1, 1, 1}, {128, 1, 1}, 4096},
                                ChainParams{d.data(), unwaited.data(), 0}),
            absl::OkStatus());
  EXPECT_THAT(d, testing::Each(48.0f));
  EXPECT_THAT(unwaited, testing::Each(testing::IsNan()));
}

TEST(WarpgroupProducts, MisuseIsAnErrorThatSaysWhatIsWrong) {
  std::vector<float> d(128 * 32), unwaited(128);
  Executor executor;
  const auto message = [&](int fault, uint32_t threads) {
    return std::string(RunAsKernel<&Chain>(executor, {{1, 1, 1}, {threads, 1, 1}, 4096},
                                           ChainParams{d.data(), unwaited.data(), fault})
                           .message());
  };
  EXPECT_THAT(message(1, 128), HasSubstr("ended before its matrix products were done"));
  EXPECT_THAT(message(2, 128), HasSubstr("issue different matrix products"));
  EXPECT_THAT(message(0, 64), HasSubstr("outside of a whole warpgroup"));
}

TEST(WarpgroupProducts, SharedMemoryThatNoProxyFenceOrdersIsAnError) {
  std::vector<float> d(128 * 32), unwaited(128);
  Executor executor;
  for (int fault : {8, 9}) {
    const ChainParams params = {d.data(), unwaited.data(), fault};
    EXPECT_THAT(
        std::string(
            RunAsKernel<&Chain>(executor, {{1, 1, 1}, {128, 1, 1}, 4096}, params).message()),
        HasSubstr("stored to without FenceProxyAsync"))
        << fault;
  }
}

void StridesByEight(const ChainParams) {
  MatrixDescriptor(SharedMemory<uint8_t>(), 16, 264, SharedSwizzle::kNone);
}

TEST(WarpgroupProducts, AStrideThatNoDescriptorHoldsIsAnError) {
  Executor executor;
  EXPECT_THAT(std::string(RunAsKernel<&StridesByEight>(executor, {{1, 1, 1}, {1, 1, 1}, 4096},
                                                       ChainParams{})
                              .message()),
              HasSubstr("a stride of 264 bytes, not a multiple of 16"));
}

// On a GPU such a kernel works or fails as nvcc orders its instructions.
TEST(WarpgroupProducts, RegistersThatNoFenceOrWaitNamesAreErrors) {
  std::vector<float> d(128 * 32), unwaited(128);
  for (CopyLanding landing : {CopyLanding::kLate, CopyLanding::kEarly}) {
    Executor executor({.landing = landing});
    const LaunchShape shape = {{1, 1, 1}, {128, 1, 1}, 4096};
    const auto message = [&](int fault) {
      const ChainParams params = {d.data(), unwaited.data(), fault};
      return std::string(RunAsKernel<&Chain>(executor, shape, params).message());
    };
    EXPECT_THAT(message(3), HasSubstr("no FenceMatrixRegisters named the registers"));
    EXPECT_THAT(message(4), HasSubstr("registers changed after the fence"));
    EXPECT_THAT(message(5), HasSubstr("no FenceMatrixRegisters named the registers"));
    EXPECT_THAT(message(7), HasSubstr("does not name the sums"));
    EXPECT_THAT(std::string(RunAsKernel<&LosesItsRegisters>(
                                executor, shape, ChainParams{d.data(), unwaited.data(), 0})
                                .message()),
                HasSubstr("does not name the registers of `a`"));
    EXPECT_THAT(message(6), HasSubstr("the sums of a product changed before its wait"));
  }
}

}  // namespace
}  // namespace baton
