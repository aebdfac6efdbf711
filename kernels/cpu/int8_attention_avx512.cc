// Attention over int8 pools on AVX-512 with VNNI: instantiates int8_attention_lanes.h.
#include "kernels/cpu/int8_products_avx512.h"
#include "kernels/cpu/vector_kernels.h"
#include "kernels/cpu/vector_math_avx512.h"
// This must come after the headers that define Lanes.
#include "kernels/cpu/int8_attention_lanes.h"

namespace baton::avx512 {

void AttentionSegment(const PagedAttentionArgs& args, const AttentionUnit& unit,
                      AttentionState* states) {
  const bool is_int8 = args.kv.type == KvType::kInt8;
  (is_int8 ? Int8SegmentOverLanes : avx512_no_vnni::FloatAttentionSegment)(args, unit, states);
}

}  // namespace baton::avx512
