// How much K and V of rows differ from those in the pool (NUMERICS §7).
//
// A warp takes a row of the batch. Its first 16 lanes are the 16 sums of K's squares, its last 16
// those of V's.
//
// Predicted limit: memory. It reads 4 bytes and the element's bytes for each value.
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/kv_params.h"
#include "kernels/elementary.h"
#include "kernels/stored_number.h"

namespace baton::compare_kv {
namespace {

constexpr unsigned kWarp = 0xffffffffu;
constexpr int kSums = 16;

// The scale of one head's row, which may lie at any byte. 1 for types without scales.
__device__ float ScaleOf(const KvLayerView& kv, int64_t row, int64_t head) {
  if (kv.type != KvType::kInt8 && kv.type != KvType::kFp8) return 1;
  const std::byte* const at = static_cast<const std::byte*>(kv.base) + row + kv.scale_offset +
                              head * static_cast<int64_t>(sizeof(float));
  unsigned bits = 0;
  for (int i = 0; i < static_cast<int>(sizeof(float)); ++i) {
    bits |= static_cast<unsigned>(at[i]) << (8 * i);
  }
  return __uint_as_float(bits);
}

// Returns a half warp's sum of squared differences from one head's row, in its first lane.
__device__ float SquaredChange(const CompareKvParams& p, const float* fresh, int64_t row,
                               int64_t head) {
  const float scale = ScaleOf(p.kv, row, head);
  const int64_t stored = row + head * p.kv.head_stride;
  float sum = 0;
  for (int64_t d = threadIdx.x % kSums; d < p.head_dim; d += kSums) {
    const float change = fresh[d] - r1::Multiply(StoredNumber(p.kv, stored + d), scale);
    sum = __fmaf_rn(change, change, sum);
  }
  for (int apart = kSums / 2; apart > 0; apart /= 2) {
    sum = sum + __shfl_xor_sync(kWarp, sum, apart);
  }
  return sum;
}

__device__ void CompareRow(const CompareKvParams& p) {
  BeginKernel();
  const int64_t token = int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32;
  if (token >= p.tokens) return;
  const int64_t slot = p.slots[token];
  const bool is_value = threadIdx.x % 32 >= kSums;
  const bool writes = threadIdx.x % kSums == 0;
  float* const changes = p.changes + token * 2 * p.kv_heads + (is_value ? 1 : 0);
  if (slot < 0) {
    for (int64_t head = 0; writes && head < p.kv_heads; ++head) changes[2 * head] = 0;
  } else {
    const int64_t block = slot >> p.kv.block_size_log2;
    const int64_t in_block = slot - (block << p.kv.block_size_log2);
    const int64_t row = block * p.kv.block_stride + in_block * p.kv.token_stride +
                        (is_value ? p.kv.value_offset : 0);
    const float* const fresh = (is_value ? p.v : p.k) + token * p.stride;
    for (int64_t head = 0; head < p.kv_heads; ++head) {
      const float change = SquaredChange(p, fresh + head * p.head_dim, row, head);
      if (writes) changes[2 * head] = change;
    }
  }
}

}  // namespace
}  // namespace baton::compare_kv

extern "C" __global__ void __launch_bounds__(128)
    baton_compare_kv(const __grid_constant__ baton::CompareKvParams p) {
  baton::compare_kv::CompareRow(p);
}

BATON_KERNEL(baton_compare_kv, baton::CompareKvParams);
