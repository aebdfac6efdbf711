// Matrix products on tensor cores for at most 8 tokens, for compute capability 8.0, which has no
// bulk copies: tensor_matmul_few_tokens.cu says what both have in common.
//
// A warp walks all columns of its 16 rows. A block has two such warps. Both copy stages of 128
// columns, by cp.async, three stages ahead of the products.
//
// Predicted limit: bytes of the weights. A block keeps 24 KiB in flight, and an A100 of 2.0 TB/s
// needs about 10 KiB on each multiprocessor. A warp's chain takes about 33 clocks for 16 columns,
// that is 15.5 bytes a clock; a multiprocessor gets 13.4 bytes a clock of its share of the memory.
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/tensor_rows.cuh"

namespace baton {

// One thread's copies of the stages of a block.
template <bool kGated>
class Sm80FewCopies {
 public:
  __device__ __forceinline__ Sm80FewCopies(const TensorMatMulParams& p, int first_pair,
                                           Sm80FewShared& shared)
      : p_(p), shared_(shared) {
    const TilePairs<kGated> pairs(p.rows);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) tiles_[i] = pairs.TileOf(first_pair + i / 2, i % 2);
  }

  __device__ __forceinline__ static float* RowsOf(Sm80FewShared& shared, int slot, int tokens) {
    return reinterpret_cast<float*>(&shared + 1) + slot * tokens * kTensorFewTokenFloats;
  }

  // Starts the copies of the next stage, if there is one. They form a group.
  __device__ __forceinline__ void Begin(int slot) {
    if (column_ < p_.cols) {
      CopyWeights(slot);
      CopyRows(slot);
      column_ += kTensorFewColumns;
    }
    CommitCopies();
  }

 private:
  static constexpr int kTiles = 2 * kTensorFewWarps;
  static constexpr int kTileBytes = kTensorFewColumns / 8 * kTileRowBytes;  // of a stage

  // A row of weights ends with zeros up to a multiple of 64 columns.
  __device__ __forceinline__ void CopyWeights(int slot) const {
    const int64_t left = p_.tile_bytes - int64_t{column_} * kFloatUnitBytes;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if (tiles_[i] < 0) continue;
      const uint8_t* from =
          p_.weight + tiles_[i] * p_.tile_bytes + int64_t{column_} * kFloatUnitBytes;
#pragma unroll
      for (int at = 0; at < kTileBytes; at += 16 * kSm80FewThreads) {
        const int byte = at + 16 * static_cast<int>(threadIdx.x);
        if (byte < left) CopyAsync16(shared_.weights[slot][i] + byte, from + byte, true);
      }
    }
  }

  // Columns past the end become zeros.
  __device__ __forceinline__ void CopyRows(int slot) const {
    constexpr int kPieces = kTensorFewColumns / 4;  // of a token
    float* const to = RowsOf(shared_, slot, p_.tokens);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < p_.tokens * kPieces; i += kSm80FewThreads) {
      const int token = i / kPieces;
      const int at = i % kPieces * 4;
      const bool valid = column_ + at < p_.cols;
      const float* from = p_.f32 + int64_t{token} * p_.cols + (valid ? column_ + at : 0);
      CopyAsync16(to + token * kTensorFewTokenFloats + at, from, valid);
    }
  }

  const TensorMatMulParams& p_;
  Sm80FewShared& shared_;
  int tiles_[kTiles];  // of the weight; -1: none
  int column_ = 0;     // the first of the next stage
};

// Grid: [blocks of kTensorFewWarps pairs]. Block: kSm80FewThreads. Shared memory:
// Sm80FewSharedBytes. REQUIRES: at most 8 tokens; cols is a multiple of 4; with the gate, rows is a
// multiple of 16.
template <WeightFormat kFormat, bool kGated>
__device__ __forceinline__ void MultiplySm80FewTokens(const TensorMatMulParams& p) {
  BeginKernel();
  using Copies = Sm80FewCopies<kGated>;
  Sm80FewShared& shared = *SharedMemory<Sm80FewShared>();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_pair = static_cast<int>(blockIdx.x) * kTensorFewWarps;
  Copies copies(p, first_pair, shared);
#pragma unroll
  for (int i = 0; i < kSm80FewStages - 1; ++i) copies.Begin(i);

  const FewTokensLane of_lane(lane, p.tokens);
  const PairOutputs<kGated> outputs(p, first_pair + warp, 2 * (lane % 4), lane);
  const bool adds = !kGated && p.accumulate != 0;
  float old[4] = {};  // loaded now, because the loads would take a microsecond after the products
  if (adds) PairOutputs<kGated>(outputs).template Load<1>(old);
  float sums[4] = {};
  int slot = 0;
#pragma unroll 1
  for (int column = 0; column < p.cols; column += kTensorFewColumns) {
    WaitCopies<kSm80FewStages - 2>();
    __syncthreads();  // the stage has landed, and the one before was read
    copies.Begin((slot + kSm80FewStages - 1) % kSm80FewStages);
    of_lane.AddStage<kFormat, true>(shared.weights[slot][2 * warp + lane / 8 % 2],
                                    Copies::RowsOf(shared, slot, p.tokens), p.cols - column, sums);
    slot = (slot + 1) % kSm80FewStages;
  }
  if (adds) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = __fadd_rn(old[i], sums[i]);
  }
  outputs.Store(sums);
}

extern "C" __global__ void __launch_bounds__(kSm80FewThreads)
    baton_tensor_matmul_sm80_few_bf16(const __grid_constant__ TensorMatMulParams p) {
  MultiplySm80FewTokens<WeightFormat::kBF16, false>(p);
}
extern "C" __global__ void __launch_bounds__(kSm80FewThreads)
    baton_tensor_matmul_sm80_few_f16(const __grid_constant__ TensorMatMulParams p) {
  MultiplySm80FewTokens<WeightFormat::kF16, false>(p);
}
extern "C" __global__ void __launch_bounds__(kSm80FewThreads)
    baton_gated_tensor_matmul_sm80_few_bf16(const __grid_constant__ TensorMatMulParams p) {
  MultiplySm80FewTokens<WeightFormat::kBF16, true>(p);
}
extern "C" __global__ void __launch_bounds__(kSm80FewThreads)
    baton_gated_tensor_matmul_sm80_few_f16(const __grid_constant__ TensorMatMulParams p) {
  MultiplySm80FewTokens<WeightFormat::kF16, true>(p);
}

BATON_KERNEL(baton_tensor_matmul_sm80_few_bf16, TensorMatMulParams);
BATON_KERNEL(baton_tensor_matmul_sm80_few_f16, TensorMatMulParams);
BATON_KERNEL(baton_gated_tensor_matmul_sm80_few_bf16, TensorMatMulParams);
BATON_KERNEL(baton_gated_tensor_matmul_sm80_few_f16, TensorMatMulParams);

}  // namespace baton
