#include "kernels/cpu/plain_kernels.h"

namespace baton {

const CpuKernels& PlainKernels() {
  static constexpr CpuKernels kKernels = {
      .set = InstructionSet::kPlain,
      .matmul = plain::MatMul,
      .gated_matmul = plain::GatedMatMul,
      .rms_norm = plain::RmsNorm,
      .silu_mul = plain::SiluMul,
      .quantize = plain::Quantize,
      .rope = plain::Rope,
      .kv_write = plain::KvWrite,
      .attention_segment = plain::AttentionSegment,
      .merge_attention = plain::MergeAttention,
      .finish_attention = plain::FinishAttention,
  };
  return kKernels;
}

}  // namespace baton
