// The inner loops of the CPU backend, one table per instruction set, all equal bit for bit.
//
// `cpu_ops.cc` cuts an op into units that threads take; a table entry computes one unit. A unit's
// bits depend on its arguments alone, so any cut gives the same result. The plain table is
// NUMERICS.md as code; the others are tested against it.
//
// Thread safety: entries are pure functions on disjoint outputs; safe together.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/numerics.h"
#include "kernels/ops.h"

namespace baton {

enum class InstructionSet : uint8_t { kPlain, kAvx2, kAvx512 };
std::string_view InstructionSetName(InstructionSet set);

// The state of one (token, query head) over one attention segment (NUMERICS §8).
struct alignas(64) AttentionState {
  float lane_sums[kLanes];
  float output[kMaxHeadDim];  // head_dim values are used
  float maximum;
  bool any_visible;
};

// What one call of attention_segment computes: tokens [token_begin, token_end), all of one
// sequence, the query heads of kv heads [kv_head_begin, kv_head_end), one segment of one run.
// REQUIRES: every token has that run; all agree on its tile_origin and query_offset.
struct AttentionUnit {
  int64_t token_begin = 0;
  int64_t token_end = 0;
  int64_t kv_head_begin = 0;
  int64_t kv_head_end = 0;
  int64_t segment = 0;  // counted from the run's tile origin
  int64_t run = 0;      // of each token's, in its order

  int64_t tokens() const { return token_end - token_begin; }
  int64_t kv_heads() const { return kv_head_end - kv_head_begin; }
};

// Run `run` of a token.
inline VisibleRun RunOf(const PagedAttentionArgs& args, int64_t token, int64_t run) {
  const RowRuns& row = args.row_runs[token];
  VisibleRun found = args.runs[row.first_run + run];
  if (run == row.run_count - 1) {
    found.begin = row.last_begin;
    found.end = row.last_end;
  }
  return found;
}

// `x` [tokens, cols] from a token and a column on, a multiple of kQuantGroup.
inline Activations ActivationsAt(Activations x, int64_t token, int64_t cols, int64_t column) {
  const int64_t at = token * cols + column;
  if (x.f32 != nullptr) x.f32 += at;
  if (x.q8 != nullptr) {
    x.q8 += at;
    x.scale += at / kQuantGroup;
    x.scaled_sum += at / kQuantGroup;
  }
  return x;
}

struct CpuKernels {
  InstructionSet set;
  // Rows [row_begin, row_end) of the product for tokens [token_begin, token_end). row_begin is a
  // multiple of kRowGroup.
  void (*matmul)(const MatMulArgs& args, int64_t row_begin, int64_t row_end, int64_t token_begin,
                 int64_t token_end);
  // matmul and silu_mul at once: rows [row_begin, row_end) of the gate and as many of the up
  // projection, which follows the gate in product.weight, make columns [row_begin, row_end) of
  // `out`. Both are multiples of kQuantGroup; the weight is quantised. product.out may be written.
  void (*gated_matmul)(const MatMulArgs& product, const Activations& out, int64_t row_begin,
                       int64_t row_end, int64_t token_begin, int64_t token_end);
  // Tokens [token_begin, token_end).
  void (*rms_norm)(const RmsNormArgs& args, int64_t token_begin, int64_t token_end);
  void (*silu_mul)(const SiluMulArgs& args, int64_t token_begin, int64_t token_end);
  void (*quantize)(const float* x, int64_t cols, const Activations& out, int64_t token_begin,
                   int64_t token_end);
  void (*rope)(const RopeArgs& args, int64_t token_begin, int64_t token_end);
  void (*kv_write)(const KvWriteArgs& args, int64_t token_begin, int64_t token_end);
  // Fills states [kv head of the unit][token of the unit][query head of the kv head]; any_visible
  // is false where the token sees nothing of the run's segment.
  void (*attention_segment)(const PagedAttentionArgs& args, const AttentionUnit& unit,
                            AttentionState* states);
  // Takes the state of a later segment or run into `running`; one without a visible slot changes
  // nothing.
  void (*merge_attention)(AttentionState& running, const AttentionState& next, int64_t head_dim);
  // The attention output of one (token, head): out[head_dim]; zeros where nothing was visible.
  void (*finish_attention)(const AttentionState& state, int64_t head_dim, float* out);
};

// Weights are packed in groups of 16 rows (packed_weights.h), the same on every instruction set.
inline constexpr int64_t kRowGroup = 16;

const CpuKernels& PlainKernels();
const CpuKernels& Avx2Kernels();
const CpuKernels& Avx512Kernels();

// What this processor can run: AVX2 needs AVX2+FMA+F16C; AVX-512 needs F, BW, VL, DQ and VNNI as
// well.
bool IsSupported(InstructionSet set);
InstructionSet BestInstructionSet();
const CpuKernels& KernelsFor(InstructionSet set);

}  // namespace baton
