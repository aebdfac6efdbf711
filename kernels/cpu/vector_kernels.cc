#include "kernels/cpu/vector_kernels.h"

namespace baton {

const CpuKernels& Avx2Kernels() {
  static constexpr CpuKernels kKernels = {
      .set = InstructionSet::kAvx2,
      .matmul = avx2::MatMul,
      .gated_matmul = avx2::GatedMatMul,
      .rms_norm = avx2::RmsNorm,
      .silu_mul = avx2::SiluMul,
      .quantize = avx2::Quantize,
      .rope = avx2::Rope,
      .kv_write = avx2::KvWrite,
      .attention_segment = avx2::AttentionSegment,
      .merge_attention = avx2::MergeAttention,
      .finish_attention = avx2::FinishAttention,
  };
  return kKernels;
}

const CpuKernels& Avx512Kernels() {
  static constexpr CpuKernels kKernels = {
      .set = InstructionSet::kAvx512,
      .matmul = avx512::MatMul,
      .gated_matmul = avx512::GatedMatMul,
      .rms_norm = avx512::RmsNorm,
      .silu_mul = avx512::SiluMul,
      .quantize = avx512::Quantize,
      .rope = avx512::Rope,
      .kv_write = avx512::KvWrite,
      .attention_segment = avx512::AttentionSegment,
      .merge_attention = avx512::MergeAttention,
      .finish_attention = avx512::FinishAttention,
  };
  return kKernels;
}

}  // namespace baton
