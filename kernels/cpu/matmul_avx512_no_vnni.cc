// Matrix products on AVX-512 without VNNI: instantiates quantized_matmul_avx512.h.
#include "kernels/cpu/byte_sums_avx512_no_vnni.h"
#include "kernels/cpu/vector_kernels.h"
// This must come after the header that defines ByteSum.
#include "kernels/cpu/quantized_matmul_avx512.h"

namespace baton::avx512_no_vnni {

void MatMul(const MatMulArgs& args, int64_t row_begin, int64_t row_end, int64_t token_begin,
            int64_t token_end) {
  const auto multiply = IsQuantized(args.weight.format) ? MultiplyQuantizedUnit<avx512::Product>
                                                        : avx512_no_vnni::FloatMatMul;
  multiply(args, row_begin, row_end, token_begin, token_end);
}

void GatedMatMul(const MatMulArgs& product, const Activations& out, int64_t row_begin,
                 int64_t row_end, int64_t token_begin, int64_t token_end) {
  MultiplyGatedUnit<avx512::Product>(product, out, row_begin, row_end, token_begin, token_end);
}

}  // namespace baton::avx512_no_vnni
