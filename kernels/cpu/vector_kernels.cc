// The build defines BATON_AVX2, BATON_AVX512_NO_VNNI and BATON_AVX512 for the sets that it compiles
// (BATON_INSTRUCTION_SETS in CMakeLists.txt). The plain kernels stand for the others.
#include "kernels/cpu/vector_kernels.h"

namespace baton {

const CpuKernels& Avx2Kernels() {
#ifdef BATON_AVX2
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
#else
  return PlainKernels();
#endif
}

const CpuKernels& Avx512NoVnniKernels() {
#ifdef BATON_AVX512_NO_VNNI
  static constexpr CpuKernels kKernels = {
      .set = InstructionSet::kAvx512NoVnni,
      .matmul = avx512_no_vnni::MatMul,
      .gated_matmul = avx512_no_vnni::GatedMatMul,
      .rms_norm = avx512_no_vnni::RmsNorm,
      .silu_mul = avx512_no_vnni::SiluMul,
      .quantize = avx512_no_vnni::Quantize,
      .rope = avx512_no_vnni::Rope,
      .kv_write = avx512_no_vnni::KvWrite,
      .attention_segment = avx512_no_vnni::AttentionSegment,
      .merge_attention = avx512_no_vnni::MergeAttention,
      .finish_attention = avx512_no_vnni::FinishAttention,
  };
  return kKernels;
#else
  return PlainKernels();
#endif
}

const CpuKernels& Avx512Kernels() {
#ifdef BATON_AVX512
  static constexpr CpuKernels kKernels = {
      .set = InstructionSet::kAvx512,
      .matmul = avx512::MatMul,
      .gated_matmul = avx512::GatedMatMul,
      .rms_norm = avx512_no_vnni::RmsNorm,
      .silu_mul = avx512_no_vnni::SiluMul,
      .quantize = avx512_no_vnni::Quantize,
      .rope = avx512_no_vnni::Rope,
      .kv_write = avx512_no_vnni::KvWrite,
      .attention_segment = avx512::AttentionSegment,
      .merge_attention = avx512_no_vnni::MergeAttention,
      .finish_attention = avx512_no_vnni::FinishAttention,
  };
  return kKernels;
#else
  return PlainKernels();
#endif
}

}  // namespace baton
