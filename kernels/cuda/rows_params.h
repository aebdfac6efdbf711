// Parameters of the kernels that work on rows of activations (NUMERICS §3, §5). All pointers to f32
// are 16-byte aligned.
#pragma once

#include <cstdint>

#include "kernels/cuda/activation_params.h"

namespace baton {

inline constexpr int kNormThreads = 512;       // one block per row
inline constexpr int kNormStageFloats = 4096;  // part of a row in shared memory
inline constexpr int kRowThreads = 128;        // four columns each
inline constexpr int kRowSliceColumns = 4 * kRowThreads;
inline constexpr int kEmbedThreads = 128;  // eight columns each
inline constexpr int kEmbedSliceColumns = 8 * kEmbedThreads;

struct RmsNormParams {
  const float* x;       // [tokens, cols]
  const float* weight;  // [cols]
  ActivationParams out;
  float epsilon;
  int32_t cols;
};

struct SiluMulParams {
  const float* gate_up;  // [tokens, 2 * cols]: gate, then up
  ActivationParams out;
  int32_t cols;
};

struct QuantizeParams {
  const float* x;  // [tokens, cols]
  ActivationParams out;
  int32_t cols;
};

struct GatherRowsParams {
  const float* x;          // [*, stride]
  const int32_t* indices;  // [rows]
  float* out;              // [rows, stride]
  int64_t stride;          // elements
  int32_t cols;
};

struct EmbedTokensParams {
  const uint8_t* table;  // in the layout of weight_layout.h
  int64_t tile_bytes;
  const int32_t* token_ids;       // [tokens]
  const int32_t* embedding_rows;  // [tokens]; null: no embeddings
  const float* embeddings;        // [*, cols]
  float* out;                     // [tokens, cols]
  int32_t cols;
};

}  // namespace baton
