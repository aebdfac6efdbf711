// Looks up rows of the embedding table and dequantises them (NUMERICS §5). Bound by the bytes it
// writes. A thread takes eight columns: the columns of one lane of weight_layout.h.
#include "kernels/cuda/activation_rows.cuh"
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/rows_params.h"
#include "kernels/cuda/weight_fragments.cuh"
#include "kernels/half.h"

namespace baton {

// Dequantises columns column…column + 7 of a row of a quantised table.
template <WeightFormat kFormat>
__device__ __forceinline__ void QuantizedEight(const uint8_t* tile, int row, int column,
                                               float (&y)[8]) {
  constexpr WeightLayout kLayout = WeightLayoutOf(kFormat);
  constexpr int kTerms = WeightTerms(kFormat);
  const uint8_t* block = tile + int64_t{column / kLayout.columns()} * kLayout.bytes();
  const int in_block = column % kLayout.columns();
  const int piece = in_block / kPieceColumns;
  const int group = in_block % kPieceColumns / 32;
  const int lane = row % 8 * 4 + column % 32 / 8;

  unsigned header[3];
  float terms[kTerms];
  LoadHeader<kFormat>(LoadGlobal(), block + kLayout.HeaderAt(), in_block / 64, row, header);
  GroupTerms<kFormat>(header, group % 2, terms);

  PairWords<kFormat> words;
  LoadPair<kFormat>(LoadGlobal(), block + kLayout.LowAt(piece) + kLayout.PairLow(group / 2),
                    block + kLayout.HighAt(piece) + kLayout.PairHigh(group / 2), lane, words);
  unsigned a[4];
  if (group % 2 == 0) {
    UnpackFragment<kFormat>(words, 0, a);
  } else {
    UnpackFragment<kFormat>(words, 1, a);
  }
  const unsigned fragments[2] = {row < 8 ? a[0] : a[1], row < 8 ? a[2] : a[3]};

  float factor = terms[0];
  if constexpr (kFormat == WeightFormat::kQ6_K) {
    factor = __fmul_rn(factor, column % 32 < 16 ? terms[1] : terms[2]);  // exact
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int byte = static_cast<int8_t>(fragments[i / 4] >> (8 * (i % 4)) & 0xffu);
    const float q = static_cast<float>(byte / (1 << FragmentShift(kFormat)));  // exact
    if constexpr (HasMinimumTerm(kFormat)) {
      y[i] = __fmaf_rn(factor, q, terms[1]);
    } else {
      y[i] = __fmul_rn(factor, q);
    }
  }
}

// Widens columns column…column + 7 of a row of a float table. Columns of the padding are zeros.
template <WeightFormat kFormat>
__device__ __forceinline__ void FloatEight(const uint8_t* tile, int row, int column, int cols,
                                           float (&y)[8]) {
  constexpr int kUnit = kFloatUnitBytes / FloatWeightBytes(kFormat);
#pragma unroll
  for (int i = 0; i < 8; i += kUnit) {
    if (column + i >= cols) break;
    const auto* unit = reinterpret_cast<const uint4*>(
        tile + (column + i) / kUnit * int64_t{kFloatUnitBytes * kFloatTileRows} +
        kFloatUnitBytes * row);
    const uint4 load = __ldg(unit);
    const unsigned words[4] = {load.x, load.y, load.z, load.w};
#pragma unroll
    for (int k = 0; k < kUnit; ++k) {
      if constexpr (kFormat == WeightFormat::kF32) {
        y[i + k] = __uint_as_float(words[k]);
      } else {
        const auto bits = static_cast<uint16_t>(words[k / 2] >> 16 * (k % 2) & 0xffffu);
        y[i + k] = kFormat == WeightFormat::kF16 ? WidenF16(bits) : BF16ToF32(bits);
      }
    }
  }
}

// Grid: [tokens, slices of kEmbedSliceColumns]. Block: kEmbedThreads.
template <WeightFormat kFormat>
__device__ __forceinline__ void EmbedToken(const EmbedTokensParams& p) {
  BeginKernel();
  const int64_t token = blockIdx.x;
  const int column = 8 * static_cast<int>(blockIdx.y * kEmbedThreads + threadIdx.x);
  if (column >= p.cols) return;
  float* out = p.out + token * p.cols + column;
  const int embedding = p.embedding_rows != nullptr ? p.embedding_rows[token] : -1;
  float y[8] = {};
  if (embedding >= 0) {
    const float* row = p.embeddings + int64_t{embedding} * p.cols + column;
#pragma unroll
    for (int i = 0; i < 8; ++i) y[i] = column + i < p.cols ? row[i] : 0.0f;
  } else if constexpr (IsQuantized(kFormat)) {
    const int row = p.token_ids[token];
    QuantizedEight<kFormat>(p.table + row / kWeightTileRows * p.tile_bytes, row % kWeightTileRows,
                            column, y);
  } else {
    const int row = p.token_ids[token];
    FloatEight<kFormat>(p.table + row / kFloatTileRows * p.tile_bytes, row % kFloatTileRows, column,
                        p.cols, y);
  }
  if (p.cols % 8 == 0) {
    reinterpret_cast<float4*>(out)[0] = float4{y[0], y[1], y[2], y[3]};
    reinterpret_cast<float4*>(out)[1] = float4{y[4], y[5], y[6], y[7]};
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (column + i < p.cols) out[i] = y[i];
  }
}

extern "C" __global__ void __launch_bounds__(kEmbedThreads)
    baton_embed_f32(const __grid_constant__ EmbedTokensParams p) {
  EmbedToken<WeightFormat::kF32>(p);
}
extern "C" __global__ void __launch_bounds__(kEmbedThreads)
    baton_embed_f16(const __grid_constant__ EmbedTokensParams p) {
  EmbedToken<WeightFormat::kF16>(p);
}
extern "C" __global__ void __launch_bounds__(kEmbedThreads)
    baton_embed_bf16(const __grid_constant__ EmbedTokensParams p) {
  EmbedToken<WeightFormat::kBF16>(p);
}
extern "C" __global__ void __launch_bounds__(kEmbedThreads)
    baton_embed_q8_0(const __grid_constant__ EmbedTokensParams p) {
  EmbedToken<WeightFormat::kQ8_0>(p);
}
extern "C" __global__ void __launch_bounds__(kEmbedThreads)
    baton_embed_q4_0(const __grid_constant__ EmbedTokensParams p) {
  EmbedToken<WeightFormat::kQ4_0>(p);
}
extern "C" __global__ void __launch_bounds__(kEmbedThreads)
    baton_embed_q4_1(const __grid_constant__ EmbedTokensParams p) {
  EmbedToken<WeightFormat::kQ4_1>(p);
}
extern "C" __global__ void __launch_bounds__(kEmbedThreads)
    baton_embed_q5_0(const __grid_constant__ EmbedTokensParams p) {
  EmbedToken<WeightFormat::kQ5_0>(p);
}
extern "C" __global__ void __launch_bounds__(kEmbedThreads)
    baton_embed_q5_1(const __grid_constant__ EmbedTokensParams p) {
  EmbedToken<WeightFormat::kQ5_1>(p);
}
extern "C" __global__ void __launch_bounds__(kEmbedThreads)
    baton_embed_q4_k(const __grid_constant__ EmbedTokensParams p) {
  EmbedToken<WeightFormat::kQ4_K>(p);
}
extern "C" __global__ void __launch_bounds__(kEmbedThreads)
    baton_embed_q5_k(const __grid_constant__ EmbedTokensParams p) {
  EmbedToken<WeightFormat::kQ5_K>(p);
}
extern "C" __global__ void __launch_bounds__(kEmbedThreads)
    baton_embed_q6_k(const __grid_constant__ EmbedTokensParams p) {
  EmbedToken<WeightFormat::kQ6_K>(p);
}

BATON_KERNEL(baton_embed_f32, EmbedTokensParams);
BATON_KERNEL(baton_embed_f16, EmbedTokensParams);
BATON_KERNEL(baton_embed_bf16, EmbedTokensParams);
BATON_KERNEL(baton_embed_q8_0, EmbedTokensParams);
BATON_KERNEL(baton_embed_q4_0, EmbedTokensParams);
BATON_KERNEL(baton_embed_q4_1, EmbedTokensParams);
BATON_KERNEL(baton_embed_q5_0, EmbedTokensParams);
BATON_KERNEL(baton_embed_q5_1, EmbedTokensParams);
BATON_KERNEL(baton_embed_q4_k, EmbedTokensParams);
BATON_KERNEL(baton_embed_q5_k, EmbedTokensParams);
BATON_KERNEL(baton_embed_q6_k, EmbedTokensParams);

}  // namespace baton
