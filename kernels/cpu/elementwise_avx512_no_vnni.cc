// Norm, gate, int8 activations, rotation and KV writes on AVX-512: instantiates elementwise_lanes.h
// with AVX-512 lanes. VNNI would not help, so this file serves both AVX-512 sets.
#include "kernels/cpu/vector_kernels.h"
#include "kernels/cpu/vector_math_avx512.h"
// This must come after the header that defines Lanes.
#include "kernels/cpu/elementwise_lanes.h"

namespace baton::avx512_no_vnni {

void RmsNorm(const RmsNormArgs& args, int64_t token_begin, int64_t token_end) {
  RmsNormOverLanes(args, token_begin, token_end);
}
void SiluMul(const SiluMulArgs& args, int64_t token_begin, int64_t token_end) {
  SiluMulOverLanes(args, token_begin, token_end);
}
void Quantize(const float* x, int64_t cols, const Activations& out, int64_t token_begin,
              int64_t token_end) {
  QuantizeOverLanes(x, cols, out, token_begin, token_end);
}
void Rope(const RopeArgs& args, int64_t token_begin, int64_t token_end) {
  RopeOverLanes(args, token_begin, token_end);
}
void KvWrite(const KvWriteArgs& args, int64_t token_begin, int64_t token_end) {
  KvWriteOverLanes(args, token_begin, token_end);
}

}  // namespace baton::avx512_no_vnni
