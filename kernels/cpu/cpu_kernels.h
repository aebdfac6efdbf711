// The inner loops of the CPU backend: one table of functions per instruction set. All tables give
// equal bits.
//
// cpu_ops.cc divides an op into units for the threads. A table entry computes one unit. The bits of
// a unit depend on its arguments alone, so any division gives the same result. The plain table
// implements NUMERICS.md directly; the others are tested against it.
//
// Thread safety: entries are pure functions. Concurrent calls are safe if their outputs are
// disjoint.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/numerics.h"
#include "kernels/ops.h"

namespace baton {

// kAvx512 has VNNI (products of bytes), kAvx512NoVnni does without.
enum class InstructionSet : uint8_t { kPlain, kAvx2, kAvx512NoVnni, kAvx512 };
// All of them, from the most portable to the fastest.
inline constexpr InstructionSet kInstructionSets[] = {InstructionSet::kPlain, InstructionSet::kAvx2,
                                                      InstructionSet::kAvx512NoVnni,
                                                      InstructionSet::kAvx512};
// Returns the name as a setting: plain, avx2, avx512-no-vnni or avx512.
std::string_view InstructionSetName(InstructionSet set);

// State of one (token, query head) in one attention segment (NUMERICS §8).
struct alignas(64) AttentionState {
  float lane_sums[kLanes];
  float output[kMaxHeadDim];  // head_dim values are used
  float maximum;
  bool any_visible;
};

// The work of one call of attention_segment: tokens [token_begin, token_end), all of one sequence,
// and the query heads of kv heads [kv_head_begin, kv_head_end), over one segment of one run.
// REQUIRES: every token has that run, and all agree on its tile_origin and query_offset.
struct AttentionUnit {
  int64_t token_begin = 0;
  int64_t token_end = 0;
  int64_t kv_head_begin = 0;
  int64_t kv_head_end = 0;
  int64_t segment = 0;  // counted from the run's tile origin
  int64_t run = 0;      // index into each token's list of runs

  int64_t tokens() const { return token_end - token_begin; }
  int64_t kv_heads() const { return kv_head_end - kv_head_begin; }
};

// Returns run number `run` of a token, with the token's own bounds if it is the last.
inline VisibleRun RunOf(const PagedAttentionArgs& args, int64_t token, int64_t run) {
  const RowRuns& row = args.row_runs[token];
  VisibleRun found = args.runs[row.first_run + run];
  if (run == row.run_count - 1) {
    found.begin = row.last_begin;
    found.end = row.last_end;
  }
  return found;
}

// Returns `x` [tokens, cols] advanced to a token and a column. REQUIRES: `column` is a multiple of
// kQuantGroup.
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

// Stores K and V of rows of the batch: the part of RopeKvWrite behind the rotation.
struct KvWriteArgs {
  const float* k = nullptr;  // [tokens, stride]; the first kv_heads * head_dim values of each row
  const float* v = nullptr;
  int64_t stride = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  const int64_t* slot_mapping = nullptr;  // [tokens] as in RopeKvWriteArgs; negative: not stored
  KvLayerView kv;
  int64_t tokens = 0;
};

struct CpuKernels {
  InstructionSet set;
  // Computes rows [row_begin, row_end) of the product for tokens [token_begin, token_end).
  // REQUIRES: row_begin is a multiple of kRowGroup.
  void (*matmul)(const MatMulArgs& args, int64_t row_begin, int64_t row_end, int64_t token_begin,
                 int64_t token_end);
  // Fuses matmul and silu_mul. Rows [row_begin, row_end) of the gate and the same rows of the up
  // projection make columns [row_begin, row_end) of `out`. The up projection follows the gate in
  // product.weight. May write product.out. REQUIRES: row_begin and row_end are multiples of
  // kQuantGroup; the weight is quantised.
  void (*gated_matmul)(const MatMulArgs& product, const Activations& out, int64_t row_begin,
                       int64_t row_end, int64_t token_begin, int64_t token_end);
  // These entries compute tokens [token_begin, token_end).
  void (*rms_norm)(const RmsNormArgs& args, int64_t token_begin, int64_t token_end);
  void (*silu_mul)(const SiluMulArgs& args, int64_t token_begin, int64_t token_end);
  void (*quantize)(const float* x, int64_t cols, const Activations& out, int64_t token_begin,
                   int64_t token_end);
  void (*rope)(const RopeArgs& args, int64_t token_begin, int64_t token_end);
  void (*kv_write)(const KvWriteArgs& args, int64_t token_begin, int64_t token_end);
  // Fills states [kv head of the unit][token of the unit][query head of the kv head]. Sets
  // any_visible to false where the token sees nothing of the run's segment.
  void (*attention_segment)(const PagedAttentionArgs& args, const AttentionUnit& unit,
                            AttentionState* states);
  // Merges the state of a later segment or run into `running`. A state without a visible slot
  // changes nothing.
  void (*merge_attention)(AttentionState& running, const AttentionState& next, int64_t head_dim);
  // Writes the attention output of one (token, head) to out[head_dim]. Writes zeros if nothing was
  // visible.
  void (*finish_attention)(const AttentionState& state, int64_t head_dim, float* out);
  // Computes attention of tokens [token_begin, token_end) by the rules of t1, for the pools of
  // IsTensorCorePool. Null: this table is of r1, which uses the three entries above for all pools.
  void (*tensor_core_attention)(const PagedAttentionArgs& args, int64_t token_begin,
                                int64_t token_end) = nullptr;
};

// Weights are packed in groups of 16 rows (packed_weights.h), equally for every instruction set.
inline constexpr int64_t kRowGroup = 16;

const CpuKernels& PlainKernels();
const CpuKernels& Avx2Kernels();
const CpuKernels& Avx512NoVnniKernels();
const CpuKernels& Avx512Kernels();

// Returns true if this processor can run the kernels. AVX2 needs AVX2, FMA and F16C. AVX-512
// without VNNI also needs F, BW, VL and DQ.
bool IsSupported(InstructionSet set);
// Returns the last one of kInstructionSets that is supported and built (built_kernels.h).
InstructionSet BestInstructionSet();
const CpuKernels& KernelsFor(InstructionSet set);

}  // namespace baton
