// Parameters of the kernels that work on rows of activations (NUMERICS §3, §5). All pointers to f32
// are 16-byte aligned.
#pragma once

#include <cstdint>

#include "kernels/cuda/activation_params.h"
#include "kernels/host_device.h"

namespace baton {

// The norm: one block per row, or per part of at most kNormPartColumns columns, one after another.
inline constexpr int kNormThreads = 512;
inline constexpr int kNormBlocks = 2;  // on one multiprocessor; bounds the registers
inline constexpr int kNormPasses = 2;  // each thread keeps four columns of a pass in registers
inline constexpr int kNormPassColumns = 4 * kNormThreads;
inline constexpr int kNormPartColumns = kNormPasses * kNormPassColumns;
inline constexpr int kNormBatch = 16;  // columns of one of the sixteen chains, loaded together
inline constexpr int kNormPadding = 2 * 16 * kNormBatch;

// Columns of a part in shared memory, with the zeros that pad it to two batches of every chain.
BATON_HOST_DEVICE constexpr int NormPaddedColumns(int cols) {
  const int part = cols < kNormPartColumns ? cols : kNormPartColumns;
  return (part + kNormPadding - 1) / kNormPadding * kNormPadding;
}
// Floats from one of the sixteen chains to the next. Eight lanes that load four floats each from
// different chains have no bank conflicts.
BATON_HOST_DEVICE constexpr int NormChainStride(int cols) {
  return NormPaddedColumns(cols) / 16 + 4;
}
BATON_HOST_DEVICE constexpr int NormSharedFloats(int cols) { return 16 * NormChainStride(cols); }

inline constexpr int kRowThreads = 128;  // four columns each
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
