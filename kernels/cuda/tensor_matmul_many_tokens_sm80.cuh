// Matrix products on tensor cores for more than 8 tokens, for compute capability 8.0: by mma.sync
// and cp.async. Operands, tiles and their order are those of tensor_matmul_many_tokens.cuh.
//
// Blocks are persistent: block i takes tiles i, i + grid, … of the result. All warps copy stages of
// 64 columns to a ring. Copies for the next tile run while the results of this tile are stored. A
// stage ends with one barrier. A warp multiplies 32 or 64 rows by 32 or 64 tokens, with one
// accumulator for each row and token, and with the columns rising.
//
// 8 columns of 8 rows or tokens have 128 bytes. They are a matrix of ldmatrix, so fragments are
// loaded without bank conflicts.
//
// Predicted limit of 128 rows by 256 tokens: a stage is 1024 instructions m16n8k16, 2 clocks each.
// Their fragments are 128 KiB of shared memory, 1024 of the 2048 clocks, and the copies write 48
// KiB, 384 clocks.
#pragma once

#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/tensor_rows.cuh"

namespace baton {

template <int kWarpgroups, int kTokens>
struct Sm80ManyShared {
  static constexpr Sm80TensorTile kTile = {{kWarpgroups, kTokens}};
  static constexpr int kStages = kTile.stages();
  uint8_t weights[kStages][8 * kWarpgroups][kHalfTileBytes];
  uint8_t rows[kStages][kTokens / 8][kHalfTileBytes];
};

// The tiles of the result, and those of a block.
template <int kWarpgroups, int kTokens, bool kGated>
struct Sm80Tiles {
  static constexpr int kPairs = 4 * kWarpgroups;
  int token_blocks;
  int count;

  __device__ __forceinline__ explicit Sm80Tiles(const TensorMatMulParams& p)
      : token_blocks((p.tokens + kTokens - 1) / kTokens),
        count((TilePairs<kGated>(p.rows).count() + kPairs - 1) / kPairs * token_blocks) {}
  __device__ __forceinline__ int FirstPair(int tile) const { return tile / token_blocks * kPairs; }
  __device__ __forceinline__ int FirstToken(int tile) const {
    return tile % token_blocks * kTokens;
  }
};

// One thread's copies: 16 bytes of every second or fourth 8-row tile of a stage.
template <int kWarpgroups, int kTokens, bool kGated>
class Sm80ManyCopies {
 public:
  using Shared = Sm80ManyShared<kWarpgroups, kTokens>;

  __device__ __forceinline__ Sm80ManyCopies(const TensorMatMulParams& p, Shared& shared)
      : p_(p), tiles_(p), shared_(shared), tile_(static_cast<int>(blockIdx.x)) {
    SetTile();
  }

  // Starts the copies of the next stage, if there is one. They form a group.
  __device__ __forceinline__ void Begin(int slot) {
    if (tile_ < tiles_.count) {
#pragma unroll
      for (int i = 0; i < kWeightCopies; ++i) {
        if (i < weight_copies_) {
          CopyAsync16(shared_.weights[slot][first_ + kStep * i] + byte_,
                      weights_ + i * WeightStep(), true);
        }
      }
#pragma unroll
      for (int i = 0; i < kRowCopies; ++i) {
        if (i < row_copies_) {
          CopyAsync16(shared_.rows[slot][first_ + kStep * i] + byte_,
                      rows_ + i * (kStep * kHalfTileBytes), true);
        }
      }
      weights_ += kHalfTileBytes;
      rows_ += HalfTokenTiles(p_.tokens) * kHalfTileBytes;
      if (++block_ == static_cast<int>(HalfColumnBlocks(p_.cols))) {
        tile_ += static_cast<int>(gridDim.x);
        SetTile();
      }
    }
    CommitCopies();
  }

 private:
  static constexpr int kStep = 2 * kWarpgroups;  // tiles that all threads copy at a time
  static constexpr int kWeightCopies = 8 * kWarpgroups / kStep;
  static constexpr int kRowCopies = kTokens / 8 / kStep;
  static_assert(kStep * kHalfTileBytes == 16 * Shared::kTile.threads());

  // Bytes between the thread's tiles of weights. They are all of the same half of their pairs.
  __device__ __forceinline__ int64_t WeightStep() const {
    return (kGated ? kStep / 2 : kStep) * p_.tile_bytes;
  }

  __device__ __forceinline__ void SetTile() {
    block_ = 0;
    if (tile_ >= tiles_.count) return;
    const TilePairs<kGated> pairs(p_.rows);
    const int first_pair = tiles_.FirstPair(tile_);
    weight_copies_ = 0;
#pragma unroll
    for (int i = 0; i < kWeightCopies; ++i) {
      const int pair = first_pair + (first_ + kStep * i) / 2;
      if (pairs.TileOf(pair, first_ % 2) >= 0) weight_copies_ = i + 1;
    }
    const int tile = pairs.TileOf(first_pair + first_ / 2, first_ % 2);
    weights_ = p_.weight + (tile < 0 ? 0 : tile) * p_.tile_bytes + byte_;
    const int token_tile = tiles_.FirstToken(tile_) / 8 + first_;
    const int left = static_cast<int>(HalfTokenTiles(p_.tokens)) - token_tile;
    row_copies_ = (left + kStep - 1) / kStep;
    rows_ = p_.halves + int64_t{token_tile} * kHalfTileBytes + byte_;
  }

  const TensorMatMulParams& p_;
  const Sm80Tiles<kWarpgroups, kTokens, kGated> tiles_;
  Shared& shared_;
  const int first_ = static_cast<int>(threadIdx.x) * 16 / kHalfTileBytes;  // of the thread's tiles
  const int byte_ = static_cast<int>(threadIdx.x) * 16 % kHalfTileBytes;
  // Position of the next stage: the tile of the result, and its block of 64 columns.
  int tile_;
  int block_ = 0;
  int weight_copies_ = 0;
  int row_copies_ = 0;
  const uint8_t* weights_ = nullptr;
  const uint8_t* rows_ = nullptr;
};

// Grid: any number of blocks. Block: Sm80TensorTile::threads. Shared memory:
// Sm80TensorTile::shared_bytes. REQUIRES: with the gate, rows is a multiple of 16.
template <WeightFormat kFormat, int kWarpgroups, int kTokens, bool kGated>
__device__ __forceinline__ void MultiplySm80ManyTokens(const TensorMatMulParams& p) {
  BeginKernel();
  using Shared = Sm80ManyShared<kWarpgroups, kTokens>;
  constexpr Sm80TensorTile kTile = Shared::kTile;
  constexpr int kPairs = kTile.warp_pairs();
  constexpr int kTokenTiles = kTile.warp_token_tiles();
  constexpr int kStages = Shared::kStages;
  static_assert(sizeof(Shared) == kTile.shared_bytes(), "the launch reserves this much");
  Shared& shared = *SharedMemory<Shared>();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_pair = warp % 2 * kPairs;  // the warp's first, of the block's
  const int warp_token_tile = warp / 2 * kTokenTiles;
  // Of ldmatrix: lane i gives row i % 8 of matrix i / 8. Matrices of the weights are the two tiles
  // of a pair, then their next 8 columns; those of the activations are 16 columns of a tile of
  // tokens, then those of the next.
  const int row_at = lane % 8 * kFloatUnitBytes;
  const int weights_at = lane / 8 % 2 * kHalfTileBytes + lane / 16 * kTileRowBytes + row_at;
  const int rows_at = lane / 16 * kHalfTileBytes + lane / 8 % 2 * kTileRowBytes + row_at;

  Sm80ManyCopies<kWarpgroups, kTokens, kGated> copies(p, shared);
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) copies.Begin(i);
  const Sm80Tiles<kWarpgroups, kTokens, kGated> tiles(p);
  const int blocks = static_cast<int>(HalfColumnBlocks(p.cols));
  int slot = 0;
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles.count;
       tile += static_cast<int>(gridDim.x)) {
    float sums[kPairs][kTokenTiles][4] = {};
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
      WaitCopies<kStages - 2>();
      __syncthreads();  // the stage has landed, and the one before was read
      copies.Begin(slot == 0 ? kStages - 1 : slot - 1);
      const uint8_t* const weights = shared.weights[slot][2 * warp_pair] + weights_at;
      const uint8_t* const rows = shared.rows[slot][warp_token_tile] + rows_at;
#pragma unroll
      for (int k = 0; k < kHalfColumns / kTensorDepth; ++k) {
        const int at = k * (kTensorDepth / 8 * kTileRowBytes);
        unsigned a[kPairs][4];
#pragma unroll
        for (int m = 0; m < kPairs; ++m) LdMatrixX4(a[m], weights + 2 * m * kHalfTileBytes + at);
#pragma unroll
        for (int n = 0; n < kTokenTiles; n += 2) {
          unsigned b[4];
          LdMatrixX4(b, rows + n * kHalfTileBytes + at);
#pragma unroll
          for (int m = 0; m < kPairs; ++m) {
            MultiplyStep<kFormat>(sums[m][n], a[m], {b[0], b[1]});
            MultiplyStep<kFormat>(sums[m][n + 1], a[m], {b[2], b[3]});
          }
        }
      }
      slot = slot + 1 == kStages ? 0 : slot + 1;
    }
    const int first_token = tiles.FirstToken(tile) + 8 * warp_token_tile + 2 * (lane % 4);
#pragma unroll
    for (int m = 0; m < kPairs; ++m) {
      const PairOutputs<kGated> first(p, tiles.FirstPair(tile) + warp_pair + m, first_token, lane);
      if (!kGated && p.accumulate != 0) {
        PairOutputs<kGated> outputs = first;
#pragma unroll
        for (int n = 0; n < kTokenTiles; ++n) outputs.template AddTo<1>(sums[m][n]);
      }
      PairOutputs<kGated> outputs = first;
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n, outputs.Advance()) outputs.Store(sums[m][n]);
    }
  }
}

}  // namespace baton
