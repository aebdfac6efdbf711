// Paged attention over pools of f16. See paged_attention.cuh.
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/paged_attention.cuh"

namespace baton::attention {
namespace {

template <int kDim, int kSplit, int kChunks>
using F16Worker = Worker<F16Elements, kDim, kSplit, kChunks>;

}  // namespace
}  // namespace baton::attention

using baton::PagedAttentionParams;
using baton::attention::F16Worker;
using baton::attention::kChunkSplit;
using baton::attention::kDecodeSplit;

extern "C" __global__ void __launch_bounds__(256, 2)
    baton_paged_attention_f16_64(const __grid_constant__ PagedAttentionParams p) {
  F16Worker<64, kChunkSplit, 8>(p).Run();
}

extern "C" __global__ void __launch_bounds__(256, 2)
    baton_paged_attention_f16_128(const __grid_constant__ PagedAttentionParams p) {
  F16Worker<128, kChunkSplit, 8>(p).Run();
}

extern "C" __global__ void __launch_bounds__(256, 2)
    baton_paged_attention_f16_256(const __grid_constant__ PagedAttentionParams p) {
  F16Worker<256, kChunkSplit, 8>(p).Run();
}

extern "C" __global__ void __launch_bounds__(128, 3)
    baton_paged_decode_f16_64(const __grid_constant__ PagedAttentionParams p) {
  F16Worker<64, kDecodeSplit, 1>(p).Run();
}

extern "C" __global__ void __launch_bounds__(128, 3)
    baton_paged_decode_f16_128(const __grid_constant__ PagedAttentionParams p) {
  F16Worker<128, kDecodeSplit, 1>(p).Run();
}

extern "C" __global__ void __launch_bounds__(128, 3)
    baton_paged_decode_f16_256(const __grid_constant__ PagedAttentionParams p) {
  F16Worker<256, kDecodeSplit, 1>(p).Run();
}

extern "C" __global__ void __launch_bounds__(256, 2)
    baton_paged_wide_decode_f16_64(const __grid_constant__ PagedAttentionParams p) {
  F16Worker<64, kDecodeSplit, 2>(p).Run();
}

extern "C" __global__ void __launch_bounds__(256, 2)
    baton_paged_wide_decode_f16_128(const __grid_constant__ PagedAttentionParams p) {
  F16Worker<128, kDecodeSplit, 2>(p).Run();
}

extern "C" __global__ void __launch_bounds__(256, 2)
    baton_paged_wide_decode_f16_256(const __grid_constant__ PagedAttentionParams p) {
  F16Worker<256, kDecodeSplit, 2>(p).Run();
}

BATON_KERNEL(baton_paged_attention_f16_64, PagedAttentionParams);
BATON_KERNEL(baton_paged_attention_f16_128, PagedAttentionParams);
BATON_KERNEL(baton_paged_attention_f16_256, PagedAttentionParams);
BATON_KERNEL(baton_paged_decode_f16_64, PagedAttentionParams);
BATON_KERNEL(baton_paged_decode_f16_128, PagedAttentionParams);
BATON_KERNEL(baton_paged_decode_f16_256, PagedAttentionParams);
BATON_KERNEL(baton_paged_wide_decode_f16_64, PagedAttentionParams);
BATON_KERNEL(baton_paged_wide_decode_f16_128, PagedAttentionParams);
BATON_KERNEL(baton_paged_wide_decode_f16_256, PagedAttentionParams);
