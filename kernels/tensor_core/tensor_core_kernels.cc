#include "kernels/tensor_core/tensor_core_kernels.h"

#include "kernels/tensor_core/half_operands.h"
#include "kernels/tensor_core/tensor_core_attention.h"
#include "kernels/tensor_core/tensor_core_matmul.h"

namespace baton {
namespace {

template <InstructionSet kSet, Numerics kNumerics>
void MatMulOver(const MatMulArgs& args, int64_t row_begin, int64_t row_end, int64_t token_begin,
                int64_t token_end) {
  if (!IsTensorCoreFormat(args.weight.format)) {
    return KernelsFor(kSet).matmul(args, row_begin, row_end, token_begin, token_end);
  }
  TensorCoreMatMul(args, row_begin, row_end, token_begin, token_end, DotModelOf(kNumerics));
}

template <Numerics kNumerics>
void AttentionOver(const PagedAttentionArgs& args, int64_t token_begin, int64_t token_end) {
  TensorCoreAttention(args, token_begin, token_end, DotModelOf(kNumerics));
}

// Makes the stored V of a token finite (NUMERICS_T1 §4). REQUIRES: a pool of 16-bit floats.
void MakeValuesFinite(const KvWriteArgs& args, int64_t slot) {
  const KvLayerView& kv = args.kv;
  const HalfType type = kv.type == KvType::kBF16 ? HalfType::kBF16 : HalfType::kF16;
  const int64_t block = slot >> kv.block_size_log2;
  const int64_t in_block = slot - (block << kv.block_size_log2);
  uint16_t* row = static_cast<uint16_t*>(kv.base) + block * kv.block_stride +
                  in_block * kv.token_stride + kv.value_offset;
  for (int64_t head = 0; head < args.kv_heads; ++head) {
    uint16_t* values = row + head * kv.head_stride;
    for (int64_t d = 0; d < args.head_dim; ++d) values[d] = FiniteHalf(type, values[d]);
  }
}

template <InstructionSet kSet>
void KvWriteOver(const KvWriteArgs& args, int64_t token_begin, int64_t token_end) {
  KernelsFor(kSet).kv_write(args, token_begin, token_end);
  if (args.kv.type != KvType::kF16 && args.kv.type != KvType::kBF16) return;
  for (int64_t token = token_begin; token < token_end; ++token) {
    if (args.slot_mapping[token] >= 0) MakeValuesFinite(args, args.slot_mapping[token]);
  }
}

template <InstructionSet kSet, Numerics kNumerics>
const CpuKernels& TableOver() {
  static const CpuKernels kTable = [] {
    CpuKernels table = KernelsFor(kSet);
    table.matmul = MatMulOver<kSet, kNumerics>;
    table.kv_write = KvWriteOver<kSet>;
    table.tensor_core_attention = AttentionOver<kNumerics>;
    return table;
  }();
  return kTable;
}

template <Numerics kNumerics>
const CpuKernels& TableOf(InstructionSet set) {
  switch (set) {
    case InstructionSet::kAvx2:
      return TableOver<InstructionSet::kAvx2, kNumerics>();
    case InstructionSet::kAvx512NoVnni:
      return TableOver<InstructionSet::kAvx512NoVnni, kNumerics>();
    case InstructionSet::kAvx512:
      return TableOver<InstructionSet::kAvx512, kNumerics>();
    case InstructionSet::kPlain:
      break;
  }
  return TableOver<InstructionSet::kPlain, kNumerics>();
}

}  // namespace

const CpuKernels& TensorCoreKernels(InstructionSet set, Numerics numerics) {
  return numerics == Numerics::kT1Sm80 ? TableOf<Numerics::kT1Sm80>(set)
                                       : TableOf<Numerics::kT1Sm90>(set);
}

}  // namespace baton
