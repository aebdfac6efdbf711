// The compute API: every operation of a forward pass, on raw pointers and strides.
//
// An op is enqueued on a Stream, runs in stream order and may be captured. Every backend
// implementation gives the results of kernels/NUMERICS.md, bit for bit. Pointers are device memory.
// They must stay valid until the op has run; for a captured op, as long as the graph exists. Counts
// in the argument structs are fixed when the op is enqueued. Everything that changes from step to
// step (positions, tables, runs) is read from device buffers when the op runs.
//
// Shapes are written [outer, …, inner]. "Tokens" are rows of the batch, from any mixture of
// sequences. Offsets are 64-bit and count elements. Ops trust their arguments: callers validate
// them, and ops do not CHECK values.
//
// Thread safety: an Ops is immutable. The thread rule of the stream applies to each call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/byte_run.h"
#include "kernels/device.h"
#include "kernels/numerics.h"
#include "kernels/paged_kv.h"
#include "kernels/row_draw.h"
#include "kernels/weight_format.h"

namespace baton {

// ---- operands ---------------------------------------------------------------------------------

// A weight matrix in the backend's own opaque layout, made by Ops::PackMatrix.
struct PackedMatrix {
  WeightFormat format = WeightFormat::kF32;
  int64_t rows = 0;  // outputs
  int64_t cols = 0;  // inputs; a multiple of BlockColumns(format)
  const std::byte* data = nullptr;
};

// Activations [tokens, cols] as f32, as int8 groups (NUMERICS §3), or both. Absent forms are null.
struct Activations {
  float* f32 = nullptr;         // [tokens, cols]
  int8_t* q8 = nullptr;         // [tokens, cols]
  float* scale = nullptr;       // [tokens, cols / 32]
  float* scaled_sum = nullptr;  // [tokens, cols / 32]
};

inline constexpr int kPositionComponents = 3;  // M-RoPE; text uses the first

// ---- op arguments -------------------------------------------------------------------------------

struct EmbedTokensArgs {
  PackedMatrix table;                  // [vocabulary, cols]
  const int32_t* token_ids = nullptr;  // [tokens]
  // Input embeddings: token t takes row embedding_rows[t] of `embeddings` where that is >= 0. Null:
  // none.
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
  Activations out;  // writes every form that is not null
};

struct MatMulArgs {
  Activations x;  // in the form that weight.format needs
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
      nullptr;               // [half] position component of each pair; null: the first for all
  float* cosines = nullptr;  // [tokens, half]
  float* sines = nullptr;    // [tokens, half]
  int64_t tokens = 0;
  int64_t half = 0;     // pairs per head
  double factor = 1.0;  // of sines and cosines (RopeAttentionFactor)
};

struct RopeArgs {
  float* x = nullptr;  // [tokens, stride]; the first heads * head_dim values of each row are
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

// Rotates the heads of Q and K in place. Then stores K and V of a whole chunk (rows of the batch)
// in the pool.
struct RopeKvWriteArgs {
  float* qk = nullptr;       // [tokens, stride]; the heads of Q, and behind them those of K
  const float* v = nullptr;  // [tokens, stride]; the first kv_heads * head_dim values of each row
  int64_t stride = 0;
  int64_t query_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;            // <= kMaxHeadDim
  const float* cosines = nullptr;  // as in RopeArgs
  const float* sines = nullptr;
  int64_t half = 0;  // as in RopeArgs; 0: nothing is rotated
  bool neighbours = true;
  // [tokens] index into the pool: block * block_size + offset. Negative: padding, rotated but not
  // stored.
  const int64_t* slot_mapping = nullptr;
  KvLayerView kv;
  int64_t tokens = 0;
};

// How much K and V of rows differ from those in the pool (NUMERICS §7).
struct CompareKvArgs {
  const float* k = nullptr;  // [tokens, stride]; the first kv_heads * head_dim values of each row
  const float* v = nullptr;
  int64_t stride = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  // [tokens] the slot to compare with, as in RopeKvWriteArgs. Negative: none, and the result is 0.
  const int64_t* slots = nullptr;
  KvLayerView kv;
  float* changes = nullptr;  // [tokens, kv_heads, 2] of K and of V of each head
  int64_t tokens = 0;
};

struct PagedAttentionArgs {
  // Query rows [*, q_stride], query_heads * head_dim values each: first the tokens, then the
  // shifted copies that VisibleRun::query_offset selects.
  const float* q = nullptr;
  int64_t q_stride = 0;
  float* out = nullptr;  // [tokens, query_heads * head_dim]
  int64_t query_heads = 0;
  int64_t kv_heads = 0;  // divides query_heads
  int64_t head_dim = 0;  // <= kMaxHeadDim
  float softmax_scale = 0;
  KvLayerView kv;
  const int32_t* sequence_of_token = nullptr;  // [tokens]; tokens of one sequence are adjacent
  const VisibleRun* runs = nullptr;            // [*]
  const RowRuns* row_runs = nullptr;           // [tokens]
  // Slot s of sequence i lies in block block_tables[i * table_stride + (s >> block_size_log2)].
  // Null selects the contiguous mode: slot s lies in block first_block[i] + (s >> block_size_log2).
  const int32_t* block_tables = nullptr;
  int64_t table_stride = 0;
  const int32_t* first_block = nullptr;  // [sequences]
  // Says which tokens of different sequences have the same KV, so that a backend may read it once.
  // If n = shared_segments[t] is not 0, token t shares the first n segments of its first run with
  // all tokens before it, back to the last one with 0. These tokens see all slots of the segments,
  // from their runs' tile origin on, in the same blocks, with equal origins and query offsets. n is
  // a multiple of kT1GroupSegments and the same for all of them. REQUIRES: tokens with equal runs
  // of one sequence share it too. Changes no result. Null: nothing is known to be shared.
  const int32_t* shared_segments = nullptr;  // [tokens]
  int64_t tokens = 0;
};

struct SiluMulArgs {
  const float* gate_up = nullptr;  // [tokens, 2 * cols]: gate, then up
  int64_t tokens = 0;
  int64_t cols = 0;
  Activations out;
};

// MatMul followed by SiluMul. The weight has twice as many rows as `out` has columns: first the
// gate projection, then the up projection.
struct GatedMatMulArgs {
  // product.out [tokens, product.weight.rows] has unspecified contents afterwards: a backend that
  // cannot fuse the two ops uses it as intermediate buffer. `accumulate` must be false.
  MatMulArgs product;
  Activations out;  // [tokens, product.weight.rows / 2]
};

struct GatherRowsArgs {
  const float* x = nullptr;          // [*, stride]; the first cols values of each row
  const int32_t* indices = nullptr;  // [rows]
  float* out = nullptr;              // [rows, stride]; may be in x's buffer, in other rows
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements; 0: cols
};

// Draws tokens from rows of logits (NUMERICS §9 without penalties).
struct SampleArgs {
  const float* logits = nullptr;   // [*, vocabulary]
  int64_t vocabulary = 0;          // at most 2^19
  const RowDraw* draws = nullptr;  // [count]; several draws may name one row
  // Additions of draw i are [first_addition[i], first_addition[i + 1]), in any order. A token may
  // appear twice. The op does not change the row itself.
  const LogitAddition* additions = nullptr;
  const int32_t* first_addition = nullptr;  // [count + 1]; null: no additions
  TokenId* tokens = nullptr;                // [count]; a token, or a code of kernels/row_draw.h
  // If not null: draw i goes to tokens[*first_token + i]. So launches of one graph can write to
  // different places.
  const int32_t* first_token = nullptr;
  int64_t count = 0;
};

// Copies tokens that an earlier Sample drew into the input: token_ids[t] = drawn[source[t]] where
// source[t] >= 0. A code in `drawn` becomes token 0. The caller drops the row when it reads the
// code.
struct FeedDrawnTokensArgs {
  const TokenId* drawn = nullptr;
  const int32_t* source = nullptr;  // [tokens]; negative: token_ids[t] is kept
  int32_t* token_ids = nullptr;     // [tokens]
  int64_t tokens = 0;
};

// Copies a list of runs of bytes. No written range may overlap another range of the list.
struct CopyRunsArgs {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::span<const ByteRun> runs;  // read before the call returns
  // `from` or `to` is staging memory (Device::AllocateStaging), not device memory.
  bool staging = false;
  // With `staging`: the next op waits for the runs. So a GPU copies the small ones by one kernel,
  // which begins sooner than a copy engine, but takes multiprocessors.
  bool urgent = false;
  // If not null: gets the CRC32C of each run's bytes [runs.size()], as common/crc32c.h computes it.
  // Staging memory. REQUIRES: not capturing.
  uint32_t* checksums = nullptr;
};

// Copies rows, each from `from` + its offset to `to` + its offset. No two rows write the same byte,
// and no row is written that another one reads.
struct CopyRowsArgs {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::span<const ByteRows> runs;  // read before the call returns
  bool staging = false;            // as in CopyRunsArgs
};

class Ops {
 public:
  virtual ~Ops() = default;

  // PackedBytes returns the bytes of a matrix in this backend's layout. PackMatrix converts GGUF's
  // row-major layout to it. Both matrices are in host memory, so the result must be copied to a
  // device that the host cannot access. Neither is stream-ordered.
  virtual size_t PackedBytes(WeightFormat format, int64_t rows, int64_t cols) const = 0;
  virtual void PackMatrix(WeightFormat format, int64_t rows, int64_t cols, const std::byte* source,
                          std::byte* destination) const = 0;

  virtual void EmbedTokens(Stream& stream, const EmbedTokensArgs& args) const = 0;
  virtual void RmsNorm(Stream& stream, const RmsNormArgs& args) const = 0;
  virtual void MatMul(Stream& stream, const MatMulArgs& args) const = 0;
  virtual void RotaryTable(Stream& stream, const RotaryTableArgs& args) const = 0;
  virtual void Rope(Stream& stream, const RopeArgs& args) const = 0;
  virtual void RopeKvWrite(Stream& stream, const RopeKvWriteArgs& args) const = 0;
  virtual void CompareKv(Stream& stream, const CompareKvArgs& args) const = 0;
  virtual void PagedAttention(Stream& stream, const PagedAttentionArgs& args) const = 0;
  // Returns true if PagedAttention with this shape (heads and type of the pool) can read shared
  // segments once for a batch of `rows` tokens.
  virtual bool SharesSegments(const PagedAttentionArgs& /*shape*/, int64_t /*rows*/) const {
    return false;
  }
  // Estimates how much faster a captured PagedAttention is for decode rows with shared_segments
  // than without. Row i sees slots[i] slots. The unit depends on the shape only. Negative: slower.
  virtual int64_t SavedBySharing(const PagedAttentionArgs& /*shape*/,
                                 std::span<const int32_t> /*slots*/,
                                 std::span<const int32_t> /*shared_segments*/) const {
    return -1;
  }
  virtual void SiluMul(Stream& stream, const SiluMulArgs& args) const = 0;
  virtual void GatedMatMul(Stream& stream, const GatedMatMulArgs& args) const = 0;
  virtual void GatherRows(Stream& stream, const GatherRowsArgs& args) const = 0;
  // Converts f32 rows [tokens, cols] to int8 groups. RmsNorm and SiluMul do this themselves;
  // Quantize serves rows of other origin (attention).
  virtual void Quantize(Stream& stream, const float* x, int64_t tokens, int64_t cols,
                        const Activations& out) const = 0;
  virtual void Sample(Stream& stream, const SampleArgs& args) const = 0;
  virtual void FeedDrawnTokens(Stream& stream, const FeedDrawnTokensArgs& args) const = 0;
  // By default, one copy of the stream for each run, and a call that reads the copied bytes for the
  // checksums. It never has a row limit.
  virtual void CopyRuns(Stream& stream, const CopyRunsArgs& args) const;
  // By default, one copy of the stream for each row. It never has a row limit.
  virtual void CopyRows(Stream& stream, const CopyRowsArgs& args) const;
};

}  // namespace baton
