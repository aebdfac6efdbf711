// The compute API: every operation of a forward pass, on raw pointers and strides.
//
// Each op is enqueued on a Stream and runs in stream order; it may be captured. Results are those
// of kernels/NUMERICS.md, bit for bit, on every backend implementation. Pointers are device memory
// and must stay valid until the op has run (for a captured op: as long as the graph lives). Counts
// in the argument structs are fixed at enqueue; everything that changes from step to step
// (positions, tables, runs) is read from device buffers when the op runs.
//
// Shapes are written [outer, …, inner]; "tokens" are rows of the batch, of any mixture of
// sequences. Offsets are 64-bit elements everywhere. Arguments are trusted: callers validate, ops
// CHECK nothing about values.
//
// Thread safety: an Ops is immutable; the stream's rule applies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/kv_type.h"
#include "kernels/device.h"
#include "kernels/numerics.h"
#include "kernels/row_draw.h"

namespace baton {

// ---- operands ---------------------------------------------------------------------------------

enum class WeightFormat : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K
};
std::string_view WeightFormatName(WeightFormat format);
// Quantised formats multiply int8 activations, float formats multiply f32 activations.
constexpr bool IsQuantized(WeightFormat format) {
  return format != WeightFormat::kF32 && format != WeightFormat::kF16 &&
         format != WeightFormat::kBF16;
}
// What a row length must be a multiple of.
constexpr int64_t BlockColumns(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      return 1;
    case WeightFormat::kQ4_K:
    case WeightFormat::kQ5_K:
    case WeightFormat::kQ6_K:
      return 256;
    default:
      return 32;
  }
}

// An opaque weight matrix in the backend's own layout, made by Ops::PackMatrix.
struct PackedMatrix {
  WeightFormat format = WeightFormat::kF32;
  int64_t rows = 0;  // outputs
  int64_t cols = 0;  // inputs; a multiple of BlockColumns(format)
  const std::byte* data = nullptr;
};

// Activations [tokens, cols] as f32, as int8 groups (NUMERICS §3), or both; absent forms are null.
struct Activations {
  float* f32 = nullptr;         // [tokens, cols]
  int8_t* q8 = nullptr;         // [tokens, cols]
  float* scale = nullptr;       // [tokens, cols / 32]
  float* scaled_sum = nullptr;  // [tokens, cols / 32]
};

// One layer of a KV pool. Element (K, block, offset in block, head, d) lies at
// base + block * block_stride + offset * token_stride + head * head_stride + d; V lies value_offset
// further. In an int8 pool the f32 scale of (K, block, offset, head) lies at byte
// base + block * block_stride + offset * token_stride + scale_offset + 4 * head; V's value_offset
// further.
struct KvLayerView {
  void* base = nullptr;
  KvType type = KvType::kF16;
  int32_t block_size_log2 = 4;
  int64_t block_stride = 0;  // all strides and offsets in elements
  int64_t token_stride = 0;
  int64_t head_stride = 0;
  int64_t value_offset = 0;
  int64_t scale_offset = 0;  // int8 only
};

// Slots [begin, end) of a sequence that rows attend to (NUMERICS §8). Rows may share a run.
struct VisibleRun {
  int32_t begin = 0;
  int32_t end = 0;
  // Segments and tiles are counted from this slot. REQUIRES: tile_origin <= begin.
  int32_t tile_origin = 0;
  // Row t scores this run with row t + query_offset of Q: a copy of its query that was rotated for
  // another position. 0: its own query.
  int32_t query_offset = 0;
};
// What one row sees: runs [first_run, first_run + run_count), in this order. The bounds of the last
// of them are the row's own, so that the rows of a chunk share all their runs.
struct RowRuns {
  int32_t first_run = 0;
  int32_t run_count = 0;  // 0: the row is padding and yields zeros
  int32_t last_begin = 0;
  int32_t last_end = 0;
};

inline constexpr int kPositionComponents = 3;  // M-RoPE; text uses the first

// ---- op arguments -------------------------------------------------------------------------------

struct EmbedTokensArgs {
  PackedMatrix table;                  // [vocabulary, cols]
  const int32_t* token_ids = nullptr;  // [tokens]
  // Input embeddings: row embedding_rows[t] of `embeddings` where that is >= 0. Null: none.
  const int32_t* embedding_rows = nullptr;  // [tokens]
  const float* embeddings = nullptr;        // [*, cols]
  float* out = nullptr;                     // [tokens, cols]
  int64_t tokens = 0;
};

struct RmsNormArgs {
  const float* x = nullptr;       // [tokens, cols]
  const float* weight = nullptr;  // [cols]
  float epsilon = 0;
  int64_t tokens = 0;
  int64_t cols = 0;
  Activations out;  // every form that is not null is written
};

struct MatMulArgs {
  Activations x;  // the form that weight.format wants
  PackedMatrix weight;
  float* out = nullptr;    // [tokens, out_stride], columns [0, weight.rows) are written
  int64_t out_stride = 0;  // elements
  int64_t tokens = 0;
  bool accumulate = false;  // out += instead of out =
};

struct RotaryTableArgs {
  const int32_t* positions = nullptr;   // [tokens, kPositionComponents]
  const double* frequencies = nullptr;  // [half]
  const uint8_t* components =
      nullptr;               // [half] which position component drives a pair; null: the first
  float* cosines = nullptr;  // [tokens, half]
  float* sines = nullptr;    // [tokens, half]
  int64_t tokens = 0;
  int64_t half = 0;  // pairs per head
};

struct RopeArgs {
  float* x = nullptr;  // [tokens, stride], heads * head_dim values from the start of each row,
                       // rotated in place
  int64_t stride = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  const float* cosines = nullptr;  // [tokens, half]
  const float* sines = nullptr;
  int64_t half = 0;        // the first 2 * half values of a head rotate
  bool neighbours = true;  // pairs (2i, 2i+1); false: (i, i + half)
  int64_t tokens = 0;
};

// Stores a whole chunk's K and V (rows of the batch) into the pool.
struct KvWriteArgs {
  const float* k =
      nullptr;  // [tokens, stride]: kv_heads * head_dim values from the start of each row
  const float* v = nullptr;
  int64_t stride = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  // [tokens] block * block_size + offset, in the pool; negative: the row is padding, not stored.
  const int64_t* slot_mapping = nullptr;
  KvLayerView kv;
  int64_t tokens = 0;
};

struct PagedAttentionArgs {
  // [tokens and rows that runs name, q_stride]: query_heads * head_dim values
  const float* q = nullptr;
  int64_t q_stride = 0;
  float* out = nullptr;  // [tokens, query_heads * head_dim]
  int64_t query_heads = 0;
  int64_t kv_heads = 0;  // divides query_heads
  int64_t head_dim = 0;  // <= kMaxHeadDim
  float softmax_scale = 0;
  KvLayerView kv;
  const int32_t* sequence_of_token = nullptr;  // [tokens]; tokens of a sequence are adjacent
  const VisibleRun* runs = nullptr;            // [*]
  const RowRuns* row_runs = nullptr;           // [tokens]
  // Slot s of sequence i lies in block block_tables[i * table_stride + (s >> block_size_log2)].
  // Null: contiguous mode, slot s lies in block first_block[i] + (s >> block_size_log2).
  const int32_t* block_tables = nullptr;
  int64_t table_stride = 0;
  const int32_t* first_block = nullptr;  // [sequences]
  int64_t tokens = 0;
};

struct SiluMulArgs {
  const float* gate_up = nullptr;  // [tokens, 2 * cols]: gate, then up
  int64_t tokens = 0;
  int64_t cols = 0;
  Activations out;
};

// MatMul and SiluMul in one: weight [2 * cols of out, …] is a gate and, in its later half of rows,
// an up projection.
struct GatedMatMulArgs {
  // product.out [tokens, product.weight.rows] is left with anything: what the backend does not gate
  // at once passes through it. No `accumulate`.
  MatMulArgs product;
  Activations out;  // [tokens, product.weight.rows / 2]
};

struct GatherRowsArgs {
  const float* x = nullptr;          // [*, stride]: cols values from the start of each row
  const int32_t* indices = nullptr;  // [rows]
  float* out = nullptr;              // [rows, stride]; may be other rows of x's buffer
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements; 0: cols
};

// Draws tokens from rows of logits: NUMERICS §9 without penalties.
struct SampleArgs {
  const float* logits = nullptr;   // [*, vocabulary]
  int64_t vocabulary = 0;          // at most 2^19
  const RowDraw* draws = nullptr;  // [count]; several may name one row
  // Additions of draw i: [first_addition[i], first_addition[i + 1]), any order, one token may come
  // twice. The row itself stays as it is.
  const LogitAddition* additions = nullptr;
  const int32_t* first_addition = nullptr;  // [count + 1]; null: no draw has any
  TokenId* tokens = nullptr;                // [count] a token, or a code of kernels/row_draw.h
  int64_t count = 0;
};

// Feeds tokens that an earlier Sample drew: token_ids[t] = drawn[source[t]] where source[t] >= 0. A
// code in `drawn` becomes token 0: the caller drops the row when it reads the code.
struct FeedDrawnTokensArgs {
  const TokenId* drawn = nullptr;
  const int32_t* source = nullptr;  // [tokens]; negative: token_ids[t] stays
  int32_t* token_ids = nullptr;     // [tokens]
  int64_t tokens = 0;
};

class Ops {
 public:
  virtual ~Ops() = default;

  // Bytes of a matrix in this backend's layout, and the conversion from GGUF's row-major one. Not
  // stream-ordered.
  virtual size_t PackedBytes(WeightFormat format, int64_t rows, int64_t cols) const = 0;
  virtual void PackMatrix(WeightFormat format, int64_t rows, int64_t cols, const std::byte* source,
                          std::byte* destination) const = 0;

  virtual void EmbedTokens(Stream& stream, const EmbedTokensArgs& args) const = 0;
  virtual void RmsNorm(Stream& stream, const RmsNormArgs& args) const = 0;
  virtual void MatMul(Stream& stream, const MatMulArgs& args) const = 0;
  virtual void RotaryTable(Stream& stream, const RotaryTableArgs& args) const = 0;
  virtual void Rope(Stream& stream, const RopeArgs& args) const = 0;
  virtual void KvWrite(Stream& stream, const KvWriteArgs& args) const = 0;
  virtual void PagedAttention(Stream& stream, const PagedAttentionArgs& args) const = 0;
  virtual void SiluMul(Stream& stream, const SiluMulArgs& args) const = 0;
  virtual void GatedMatMul(Stream& stream, const GatedMatMulArgs& args) const = 0;
  virtual void GatherRows(Stream& stream, const GatherRowsArgs& args) const = 0;
  // f32 rows [tokens, cols] to int8 groups: what RmsNorm and SiluMul fuse, for rows that come from
  // elsewhere (attention).
  virtual void Quantize(Stream& stream, const float* x, int64_t tokens, int64_t cols,
                        const Activations& out) const = 0;
  virtual void Sample(Stream& stream, const SampleArgs& args) const = 0;
  virtual void FeedDrawnTokens(Stream& stream, const FeedDrawnTokensArgs& args) const = 0;
};

}  // namespace baton
