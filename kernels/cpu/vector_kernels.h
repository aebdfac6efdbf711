// The vector kernels, one per entry of CpuKernels and instruction set. Each gives the same bits as
// the function of the same name in plain_kernels.h. A namespace has the functions that the files of
// the same ending define; that ending also chooses the compiler's options (CMakeLists.txt).
#pragma once

#include "kernels/cpu/cpu_kernels.h"

namespace baton::avx2 {

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
void AttentionSegment(const PagedAttentionArgs& args, const AttentionUnit& unit,
                      AttentionState* states);
void MergeAttention(AttentionState& running, const AttentionState& next, int64_t head_dim);
void FinishAttention(const AttentionState& state, int64_t head_dim, float* out);

}  // namespace baton::avx2

// AVX-512 has these, and below the few that VNNI makes faster.
namespace baton::avx512_no_vnni {

void MatMul(const MatMulArgs& args, int64_t row_begin, int64_t row_end, int64_t token_begin,
            int64_t token_end);
// For float weights only.
void FloatMatMul(const MatMulArgs& args, int64_t row_begin, int64_t row_end, int64_t token_begin,
                 int64_t token_end);
void GatedMatMul(const MatMulArgs& product, const Activations& out, int64_t row_begin,
                 int64_t row_end, int64_t token_begin, int64_t token_end);
void RmsNorm(const RmsNormArgs& args, int64_t token_begin, int64_t token_end);
void SiluMul(const SiluMulArgs& args, int64_t token_begin, int64_t token_end);
void Quantize(const float* x, int64_t cols, const Activations& out, int64_t token_begin,
              int64_t token_end);
void Rope(const RopeArgs& args, int64_t token_begin, int64_t token_end);
void KvWrite(const KvWriteArgs& args, int64_t token_begin, int64_t token_end);
void AttentionSegment(const PagedAttentionArgs& args, const AttentionUnit& unit,
                      AttentionState* states);
// For float pools only.
void FloatAttentionSegment(const PagedAttentionArgs& args, const AttentionUnit& unit,
                           AttentionState* states);
void MergeAttention(AttentionState& running, const AttentionState& next, int64_t head_dim);
void FinishAttention(const AttentionState& state, int64_t head_dim, float* out);

}  // namespace baton::avx512_no_vnni

namespace baton::avx512 {

void MatMul(const MatMulArgs& args, int64_t row_begin, int64_t row_end, int64_t token_begin,
            int64_t token_end);
void GatedMatMul(const MatMulArgs& product, const Activations& out, int64_t row_begin,
                 int64_t row_end, int64_t token_begin, int64_t token_end);
void AttentionSegment(const PagedAttentionArgs& args, const AttentionUnit& unit,
                      AttentionState* states);

}  // namespace baton::avx512
