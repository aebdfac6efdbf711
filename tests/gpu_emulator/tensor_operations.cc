#include "tests/gpu_emulator/tensor_operations.h"

#include <cstring>

#include "kernels/tensor_core/fused_dot.h"
#include "tests/gpu_emulator/execution.h"
#include "tests/gpu_emulator/sanitizers.h"

namespace baton::gpu_emulator {
namespace {

constexpr int kRows = 16;
constexpr int kCols = 8;

template <typename Result>
struct MmaOperands {
  Result* d;
  const unsigned* a;
  const unsigned* b;
};

// Gathers the fragments of all lanes into A [16, k] and B [8, k], both with k contiguous. An
// element has `Element`'s size; a register holds 4 bytes.
template <typename Element, int kDepth, typename Result>
struct MmaTiles {
  static constexpr int kPerRegister = 4 / sizeof(Element);
  static constexpr int kHalfDepth =
      4 * kPerRegister;  // columns that one register of all lanes covers

  explicit MmaTiles(void* const* operands) {
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      const auto& mine = *static_cast<const MmaOperands<Result>*>(operands[lane]);
      const int group = lane / 4;
      const int first = lane % 4 * kPerRegister;
      for (int half = 0; half < kDepth / kHalfDepth; ++half) {
        const int k = first + half * kHalfDepth;
        std::memcpy(&a[group][k], &mine.a[2 * half], 4);
        std::memcpy(&a[group + 8][k], &mine.a[2 * half + 1], 4);
        std::memcpy(&b[group][k], &mine.b[half], 4);
      }
    }
  }

  alignas(64) Element a[kRows][kDepth];
  alignas(64) Element b[kCols][kDepth];
};

// Calls multiply(row, col, accumulator) for each element of d.
template <typename Result, typename Multiply>
void ForEachResult(void* const* operands, Multiply multiply) {
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const auto& mine = *static_cast<const MmaOperands<Result>*>(operands[lane]);
    for (int i = 0; i < 4; ++i) {
      mine.d[i] = multiply(lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2, mine.d[i]);
    }
  }
}

void CheckWholeWarp(uint32_t lanes) {
  if (lanes != kAllLanes) {
    ThisExecution().Fail("a matrix instruction without all lanes of the warp", {});
  }
}

template <int kDepth>
void PerformInt8(void* const* operands, uint32_t lanes) {
  CheckWholeWarp(lanes);
  const MmaTiles<int8_t, kDepth, int> tiles(operands);
  ForEachResult<int>(operands, [&](int row, int col, int sum) {
    unsigned dot = 0;
    for (int k = 0; k < kDepth; ++k) {
      dot += static_cast<unsigned>(int{tiles.a[row][k]} * int{tiles.b[col][k]});
    }
    return static_cast<int>(static_cast<unsigned>(sum) + dot);
  });
}

template <HalfType kType>
void PerformHalf(void* const* operands, uint32_t lanes) {
  CheckWholeWarp(lanes);
  constexpr int kDepth = 16;
  const MmaTiles<uint16_t, kDepth, float> tiles(operands);
  const DotModel model =
      ThisExecution().rules().tensor_core == TensorCore::kHopper ? kHopperDot : kAmpereDot;
  ForEachResult<float>(operands, [&](int row, int col, float sum) {
    return FusedDot(model, kType, tiles.a[row], tiles.b[col], kDepth, sum);
  });
}

constexpr WarpOperation kInt8K32 = {"mma m16n8k32 s8", &PerformInt8<32>};
constexpr WarpOperation kInt8K16 = {"mma m16n8k16 s8", &PerformInt8<16>};
constexpr WarpOperation kBf16K16 = {"mma m16n8k16 bf16", &PerformHalf<HalfType::kBF16>};
constexpr WarpOperation kF16K16 = {"mma m16n8k16 f16", &PerformHalf<HalfType::kF16>};

struct LoadOperands {
  uint16_t row[8];  // read by the lane that gave its address
  unsigned* results;
  int matrices;
  bool transposed;
};

void PerformLoad(void* const* operands, uint32_t lanes) {
  CheckWholeWarp(lanes);
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const auto& mine = *static_cast<const LoadOperands*>(operands[lane]);
    for (int m = 0; m < mine.matrices; ++m) {
      unsigned packed = 0;
      for (int i = 0; i < 2; ++i) {
        const int row = mine.transposed ? lane % 4 * 2 + i : lane / 4;
        const int col = mine.transposed ? lane / 4 : lane % 4 * 2 + i;
        const auto& source = *static_cast<const LoadOperands*>(operands[8 * m + row]);
        packed |= unsigned{source.row[col]} << (16 * i);
      }
      mine.results[m] = packed;
    }
  }
}

constexpr WarpOperation kLoads[2][2] = {
    {{"ldmatrix x2", &PerformLoad}, {"ldmatrix x2 transposed", &PerformLoad}},
    {{"ldmatrix x4", &PerformLoad}, {"ldmatrix x4 transposed", &PerformLoad}}};

template <typename Result>
void RunMma(const WarpOperation& operation, Result* d, const unsigned* a, const unsigned* b,
            SourcePlace place) {
  MmaOperands<Result> operands = {d, a, b};
  ThisExecution().Meet(kAllLanes, operation, &operands, place);
}

}  // namespace

void MmaInt8K32(int* d, const unsigned* a, const unsigned* b, SourcePlace place) {
  RunMma(kInt8K32, d, a, b, place);
}
void MmaInt8K16(int* d, const unsigned* a, const unsigned* b, SourcePlace place) {
  RunMma(kInt8K16, d, a, b, place);
}
void MmaBf16K16(float* d, const unsigned* a, const unsigned* b, SourcePlace place) {
  RunMma(kBf16K16, d, a, b, place);
}
void MmaF16K16(float* d, const unsigned* a, const unsigned* b, SourcePlace place) {
  RunMma(kF16K16, d, a, b, place);
}

void LoadMatrices(unsigned* results, int matrices, bool transposed, const void* row,
                  SourcePlace place) {
  Execution& execution = ThisExecution();
  LoadOperands operands = {{}, results, matrices, transposed};
  if (execution.current().lane < 8 * matrices) {
    execution.CheckShared(row, sizeof(operands.row), "ldmatrix", place);
    NoteRead(row, sizeof(operands.row));
    std::memcpy(operands.row, row, sizeof(operands.row));
  }
  execution.Meet(kAllLanes, kLoads[matrices == 4][transposed], &operands, place);
}

}  // namespace baton::gpu_emulator
