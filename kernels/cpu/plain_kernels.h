// The plain kernels, one per entry of CpuKernels. They implement NUMERICS.md directly and run on
// any processor. They favour clarity over speed, and are the reference for the fast kernels.
#pragma once

#include "kernels/cpu/cpu_kernels.h"

namespace baton::plain {

void MatMul(const MatMulArgs& args, int64_t row_begin, int64_t row_end, int64_t token_begin,
            int64_t token_end);
void GatedMatMul(const MatMulArgs& product, const Activations& out, int64_t row_begin,
                 int64_t row_end, int64_t token_begin, int64_t token_end);
void RmsNorm(const RmsNormArgs& args, int64_t token_begin, int64_t token_end);
void SiluMul(const SiluMulArgs& args, int64_t token_begin, int64_t token_end);
void Quantize(const float* x, int64_t cols, const Activations& out, int64_t token_begin,
              int64_t token_end);
void Rope(const RopeArgs& args, int64_t token_begin, int64_t token_end);
void KvWrite(const KvWriteArgs& args, int64_t token_begin, int64_t token_end);
// Not an entry of CpuKernels: all instruction sets use it.
void CompareKv(const CompareKvArgs& args, int64_t token_begin, int64_t token_end);
void AttentionSegment(const PagedAttentionArgs& args, const AttentionUnit& unit,
                      AttentionState* states);
void MergeAttention(AttentionState& running, const AttentionState& next, int64_t head_dim);
void FinishAttention(const AttentionState& state, int64_t head_dim, float* out);

}  // namespace baton::plain
