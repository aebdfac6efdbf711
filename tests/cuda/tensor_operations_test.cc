// Matrix instructions against the fragment layouts of the PTX ISA, written here element by element.
#include "tests/gpu_emulator/tensor_operations.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/tensor_core/fused_dot.h"
#include "tests/cuda/run_kernel.h"

namespace baton {
namespace {

using gpu_emulator::Executor;
using gpu_emulator::TensorCore;
using testing::HasSubstr;

// Fragments of one warp, as registers.
struct MmaParams {
  const unsigned* a;  // [32, 4]
  const unsigned* b;  // [32, 2]
  void* d;            // [32, 4], read and written
  int kind;           // 0: s8 k32, 1: s8 k16, 2: bf16, 3: f16
};

void RunsMma(const MmaParams p) {
  const unsigned lane = threadIdx.x;
  unsigned a[4], b[2];
  for (int i = 0; i < 4; ++i) a[i] = p.a[lane * 4 + i];
  for (int i = 0; i < 2; ++i) b[i] = p.b[lane * 2 + i];
  if (p.kind < 2) {
    int d[4];
    int* out = static_cast<int*>(p.d) + lane * 4;
    for (int i = 0; i < 4; ++i) d[i] = out[i];
    const unsigned half[2] = {a[0], a[1]};
    if (p.kind == 0) MmaM16N8K32S8(d, a, b);
    if (p.kind == 1) MmaM16N8K16S8(d, half, b[0]);
    for (int i = 0; i < 4; ++i) out[i] = d[i];
  } else {
    float d[4];
    float* out = static_cast<float*>(p.d) + lane * 4;
    for (int i = 0; i < 4; ++i) d[i] = out[i];
    if (p.kind == 2) MmaM16N8K16Bf16(d, a, b);
    if (p.kind == 3) MmaM16N8K16F16(d, a, b);
    for (int i = 0; i < 4; ++i) out[i] = d[i];
  }
}

// Element i of a lane's fragment in matrix A, B or D (PTX ISA, "Matrix Fragments for mma.m16n8k32",
// "… m16n8k16 with .s8" and "… m16n8k16 with floating point type").
struct Position {
  int row, col;
};
struct Layout {
  int depth;
  int a_elements, b_elements;
  Position (*a)(int lane, int i);
  Position (*b)(int lane, int i);
};
const Layout kS8K32 = {32, 16, 8,
                       [](int lane, int i) {
                         return Position{
                             (i < 4 || (i >= 8 && i < 12)) ? lane >> 2 : (lane >> 2) + 8,
                             (lane % 4) * 4 + (i & 3) + (i < 8 ? 0 : 16)};
                       },
                       [](int lane, int i) {
                         return Position{(lane % 4) * 4 + (i & 3) + (i < 4 ? 0 : 16), lane >> 2};
                       }};
const Layout kS8K16 = {
    16, 8, 4,
    [](int lane, int i) {
      return Position{i < 4 ? lane >> 2 : (lane >> 2) + 8, (lane % 4) * 4 + (i & 3)};
    },
    [](int lane, int i) {
      return Position{(lane % 4) * 4 + i, lane >> 2};
    }};
const Layout kHalfK16 = {16, 8, 4,
                         [](int lane, int i) {
                           return Position{
                               (i < 2 || (i >= 4 && i < 6)) ? lane >> 2 : (lane >> 2) + 8,
                               (lane % 4) * 2 + (i & 1) + (i < 4 ? 0 : 8)};
                         },
                         [](int lane, int i) {
                           return Position{(lane % 4) * 2 + (i & 1) + (i < 2 ? 0 : 8), lane >> 2};
                         }};
Position OfResult(int lane, int i) {
  return {i < 2 ? lane >> 2 : (lane >> 2) + 8, (lane % 4) * 2 + (i & 1)};
}

// Random fragments, and the matrices that they mean.
template <typename Element>
struct Operands {
  Operands(const Layout& layout, uint64_t seed, Element (*draw)(std::mt19937&))
      : a(16 * layout.depth), b(8 * layout.depth), a_registers(32 * 4), b_registers(32 * 2) {
    std::mt19937 random(seed);
    auto* a_fragments = reinterpret_cast<Element*>(a_registers.data());
    auto* b_fragments = reinterpret_cast<Element*>(b_registers.data());
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < layout.a_elements; ++i) {
        const Position at = layout.a(lane, i);
        a_fragments[lane * 16 / sizeof(Element) + i] = a[at.row * layout.depth + at.col] =
            draw(random);
      }
      for (int i = 0; i < layout.b_elements; ++i) {
        const Position at = layout.b(lane, i);
        b_fragments[lane * 8 / sizeof(Element) + i] = b[at.col * layout.depth + at.row] =
            draw(random);
      }
    }
  }

  std::vector<Element> a;  // [16, depth]
  std::vector<Element> b;  // [8, depth]: the columns
  std::vector<unsigned> a_registers, b_registers;
};

int8_t AnyByte(std::mt19937& random) { return static_cast<int8_t>(random()); }
uint16_t AnyHalf(std::mt19937& random) { return static_cast<uint16_t>(random() & 0xbfff); }

TEST(TensorOperations, IntegerProductsAreExactInTheLayoutOfPtx) {
  Executor executor;
  for (int kind : {0, 1}) {
    const Layout& layout = kind == 0 ? kS8K32 : kS8K16;
    const Operands<int8_t> operands(layout, 7 + kind, &AnyByte);
    std::vector<int> d(128);
    for (int i = 0; i < 128; ++i) d[i] = i == 0 ? INT32_MAX : 1000 * i;
    const std::vector<int> start = d;
    ASSERT_TRUE(RunAsKernel<&RunsMma>(executor, {{1, 1, 1}, {32, 1, 1}, 0},
                                      MmaParams{operands.a_registers.data(),
                                                operands.b_registers.data(), d.data(), kind})
                    .ok());
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const Position at = OfResult(lane, i);
        int64_t want = start[lane * 4 + i];
        for (int k = 0; k < layout.depth; ++k) {
          want += operands.a[at.row * layout.depth + k] * operands.b[at.col * layout.depth + k];
        }
        ASSERT_EQ(d[lane * 4 + i], static_cast<int32_t>(want)) << kind << " " << lane << " " << i;
      }
    }
  }
}

TEST(TensorOperations, HalfProductsFollowTheBitModelOfTheChosenTensorCore) {
  int differ = 0;
  for (TensorCore core : {TensorCore::kHopper, TensorCore::kAmpere}) {
    Executor executor({.tensor_core = core});
    for (int kind : {2, 3}) {
      const Operands<uint16_t> operands(kHalfK16, 11 + kind, &AnyHalf);
      std::vector<float> d(128);
      for (int i = 0; i < 128; ++i) d[i] = 0.37f * static_cast<float>(i);
      const std::vector<float> start = d;
      ASSERT_TRUE(RunAsKernel<&RunsMma>(executor, {{1, 1, 1}, {32, 1, 1}, 0},
                                        MmaParams{operands.a_registers.data(),
                                                  operands.b_registers.data(), d.data(), kind})
                      .ok());
      const HalfType type = kind == 2 ? HalfType::kBF16 : HalfType::kF16;
      for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 4; ++i) {
          const Position at = OfResult(lane, i);
          const auto dot = [&](const DotModel& model) {
            return PlainFusedDot(model, type, &operands.a[at.row * 16], &operands.b[at.col * 16],
                                 16, start[lane * 4 + i]);
          };
          const float want = dot(core == TensorCore::kHopper ? kHopperDot : kAmpereDot);
          ASSERT_EQ(__float_as_uint(d[lane * 4 + i]), __float_as_uint(want));
          differ += dot(kHopperDot) != dot(kAmpereDot);
        }
      }
    }
  }
  EXPECT_GT(differ, 0);  // otherwise the test could not tell the two apart
}

struct LoadParams {
  unsigned* out;  // [32, 4]
  int kind;       // 0: x4, 1: x2, 2: x4 transposed, 3: x2 transposed
  int shift;      // bytes added to each address
};

// Row r of matrix m lies at 16 · ((8m + r) · 5 mod 32). Element c of it is 100 (8m + r) + c.
void LoadsMatrices(const LoadParams p) {
  const int lane = static_cast<int>(threadIdx.x);
  auto* shared = SharedMemory<uint16_t>();
  auto* row = shared + lane * 5 % 32 * 8;
  for (int c = 0; c < 8; ++c) row[c] = static_cast<uint16_t>(100 * lane + c);
  __syncwarp();
  const void* address = reinterpret_cast<const char*>(row) + p.shift;
  unsigned four[4] = {}, two[2] = {};
  if (p.kind == 0) LdMatrixX4(four, address);
  if (p.kind == 1) LdMatrixX2(two, address);
  if (p.kind == 2) LdMatrixX4Transposed(four, address);
  if (p.kind == 3) LdMatrixX2Transposed(two, address);
  for (int i = 0; i < 4; ++i) p.out[lane * 4 + i] = p.kind % 2 == 0 ? four[i] : i < 2 ? two[i] : 0;
}

TEST(TensorOperations, LdMatrixGivesEachLaneItsPartOfTheRows) {
  Executor executor;
  for (int kind = 0; kind < 4; ++kind) {
    std::vector<unsigned> out(128);
    ASSERT_TRUE(RunAsKernel<&LoadsMatrices>(executor, {{1, 1, 1}, {32, 1, 1}, 512},
                                            LoadParams{out.data(), kind, 0})
                    .ok());
    for (int lane = 0; lane < 32; ++lane) {
      for (int m = 0; m < (kind % 2 == 0 ? 4 : 2); ++m) {
        // PTX ISA, ldmatrix: lane T has row T / 4, elements 2 (T % 4) and the next; with .trans the
        // same of the transposed matrix.
        unsigned want = 0;
        for (int i = 0; i < 2; ++i) {
          int row = lane / 4, col = 2 * (lane % 4) + i;
          if (kind >= 2) std::swap(row, col);
          want |= static_cast<unsigned>(100 * (8 * m + row) + col) << (16 * i);
        }
        ASSERT_EQ(out[lane * 4 + m], want) << "kind " << kind << " lane " << lane << " m " << m;
      }
    }
  }
}

TEST(TensorOperations, LdMatrixRefusesAddressesThatTheHardwareRefuses) {
  Executor executor;
  std::vector<unsigned> out(128);
  const auto message = [&](int shift, uint32_t shared) {
    return std::string(RunAsKernel<&LoadsMatrices>(executor, {{1, 1, 1}, {32, 1, 1}, shared},
                                                   LoadParams{out.data(), 0, shift})
                           .message());
  };
  EXPECT_THAT(message(8, 1024), HasSubstr("ldmatrix: the shared address is no multiple of 16"));
  EXPECT_THAT(message(512, 512), HasSubstr("ldmatrix: the address is not in shared memory"));
}

struct PartParams {
  int unused;
};

void MmaOfHalfAWarp(const PartParams) {
  int d[4] = {};
  const unsigned a[4] = {}, b[2] = {};
  if (threadIdx.x >= 16) return;
  MmaM16N8K32S8(d, a, b);
}

TEST(TensorOperations, AMatrixInstructionWithoutTheWholeWarpIsAnError) {
  Executor executor;
  const absl::Status status =
      RunAsKernel<&MmaOfHalfAWarp>(executor, {{1, 1, 1}, {32, 1, 1}, 0}, PartParams{});
  EXPECT_THAT(std::string(status.message()), HasSubstr("without all lanes of the warp"));
}

}  // namespace
}  // namespace baton
