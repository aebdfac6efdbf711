// Paged attention over pools of fp8. See paged_attention.cuh.
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/paged_attention.cuh"

namespace baton::attention {
namespace {

template <int kDim, int kSplit, int kChunks>
using Fp8Worker = Worker<Fp8Elements, kDim, kSplit, kChunks>;

}  // namespace
}  // namespace baton::attention

using baton::PagedAttentionParams;
using baton::attention::Fp8Worker;
using baton::attention::kChunkSplit;
using baton::attention::kDecodeSplit;

extern "C" __global__ void __launch_bounds__(256, 2)
    baton_paged_attention_fp8_64(const __grid_constant__ PagedAttentionParams p) {
  Fp8Worker<64, kChunkSplit, 8>(p).Run();
}

extern "C" __global__ void __launch_bounds__(256, 2)
    baton_paged_attention_fp8_128(const __grid_constant__ PagedAttentionParams p) {
  Fp8Worker<128, kChunkSplit, 8>(p).Run();
}

extern "C" __global__ void __launch_bounds__(256, 2)
    baton_paged_attention_fp8_256(const __grid_constant__ PagedAttentionParams p) {
  Fp8Worker<256, kChunkSplit, 8>(p).Run();
}

extern "C" __global__ void __launch_bounds__(128, 3)
    baton_paged_decode_fp8_64(const __grid_constant__ PagedAttentionParams p) {
  Fp8Worker<64, kDecodeSplit, 1>(p).Run();
}

extern "C" __global__ void __launch_bounds__(128, 3)
    baton_paged_decode_fp8_128(const __grid_constant__ PagedAttentionParams p) {
  Fp8Worker<128, kDecodeSplit, 1>(p).Run();
}

extern "C" __global__ void __launch_bounds__(128, 3)
    baton_paged_decode_fp8_256(const __grid_constant__ PagedAttentionParams p) {
  Fp8Worker<256, kDecodeSplit, 1>(p).Run();
}

extern "C" __global__ void __launch_bounds__(256, 2)
    baton_paged_wide_decode_fp8_64(const __grid_constant__ PagedAttentionParams p) {
  Fp8Worker<64, kDecodeSplit, 2>(p).Run();
}

extern "C" __global__ void __launch_bounds__(256, 2)
    baton_paged_wide_decode_fp8_128(const __grid_constant__ PagedAttentionParams p) {
  Fp8Worker<128, kDecodeSplit, 2>(p).Run();
}

extern "C" __global__ void __launch_bounds__(256, 2)
    baton_paged_wide_decode_fp8_256(const __grid_constant__ PagedAttentionParams p) {
  Fp8Worker<256, kDecodeSplit, 2>(p).Run();
}

BATON_KERNEL(baton_paged_attention_fp8_64, PagedAttentionParams);
BATON_KERNEL(baton_paged_attention_fp8_128, PagedAttentionParams);
BATON_KERNEL(baton_paged_attention_fp8_256, PagedAttentionParams);
BATON_KERNEL(baton_paged_decode_fp8_64, PagedAttentionParams);
BATON_KERNEL(baton_paged_decode_fp8_128, PagedAttentionParams);
BATON_KERNEL(baton_paged_decode_fp8_256, PagedAttentionParams);
BATON_KERNEL(baton_paged_wide_decode_fp8_64, PagedAttentionParams);
BATON_KERNEL(baton_paged_wide_decode_fp8_128, PagedAttentionParams);
BATON_KERNEL(baton_paged_wide_decode_fp8_256, PagedAttentionParams);
