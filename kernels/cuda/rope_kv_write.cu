// Rotates Q and K in place (NUMERICS §6), and stores K and V in the pool (§7, NUMERICS_T1 §4).
//
// Predicted limit: memory. It reads 4 bytes for each value, and writes 4 for each one of Q and K
// and the element's bytes for each one of K and V. A decode step's launch takes the time of one
// access to memory: a warp loads all of its row before it waits.
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/kv_params.h"
#include "kernels/cuda/rotation.cuh"
#include "kernels/elementary.h"
#include "kernels/fp8.h"
#include "kernels/half.h"
#include "kernels/numerics.h"

namespace baton::rope_kv_write {
namespace {

__device__ bool IsAligned(const void* address, int bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

struct Narrow {
  KvType type;
  bool finite;  // infinities become the largest finite number of their sign, NaN becomes +0

  __device__ uint16_t operator()(float value) const {
    const bool f16 = type == KvType::kF16;
    const uint16_t bits = f16 ? F32ToF16(value) : F32ToBF16(value);
    const unsigned infinity = f16 ? 0x7c00 : 0x7f80;
    const unsigned magnitude = bits & 0x7fffu;
    if (!finite || magnitude < infinity) return bits;
    return magnitude == infinity ? static_cast<uint16_t>(bits - 1) : uint16_t{0};
  }
};

__device__ void StoreFloats(const float* from, int64_t count, float* to) {
  const int lane = threadIdx.x % 32;
  if (count % 4 == 0 && IsAligned(from, 16) && IsAligned(to, 16)) {
    for (int64_t i = lane; i < count / 4; i += 32) {
      reinterpret_cast<float4*>(to)[i] = reinterpret_cast<const float4*>(from)[i];
    }
    return;
  }
  for (int64_t i = lane; i < count; i += 32) to[i] = from[i];
}

__device__ void StoreHalves(const float* from, int64_t count, const Narrow& narrow, uint16_t* to) {
  const int lane = threadIdx.x % 32;
  if (count % 4 == 0 && IsAligned(from, 16) && IsAligned(to, 8)) {
    for (int64_t i = lane; i < count / 4; i += 32) {
      const float4 four = reinterpret_cast<const float4*>(from)[i];
      reinterpret_cast<ushort4*>(to)[i] =
          make_ushort4(narrow(four.x), narrow(four.y), narrow(four.z), narrow(four.w));
    }
    return;
  }
  for (int64_t i = lane; i < count; i += 32) to[i] = narrow(from[i]);
}

// Returns the largest magnitude(x) over a row.
template <typename Magnitude>
__device__ unsigned LargestOf(const float* from, int64_t count, const Magnitude& magnitude) {
  unsigned largest = 0;
  for (int64_t i = threadIdx.x % 32; i < count; i += 32) {
    const unsigned next = magnitude(from[i]);
    largest = next > largest ? next : largest;
  }
  return __reduce_max_sync(0xffffffffu, largest);
}

// Stores byte(x) for each x of a row, and the bits of the scale, which may lie at any byte.
template <typename Byte>
__device__ void StoreBytes(const float* from, int64_t count, const Byte& byte, std::byte* to,
                           unsigned scale, std::byte* scale_at) {
  const int lane = threadIdx.x % 32;
  for (int64_t i = lane; i < count; i += 32) to[i] = static_cast<std::byte>(byte(from[i]));
  if (lane >= static_cast<int>(sizeof(float))) return;
  scale_at[lane] = static_cast<std::byte>(scale >> (8 * lane) & 0xffu);
}

__device__ void StoreInt8(const float* from, int64_t count, std::byte* to, std::byte* scale_at) {
  const float amax =
      __uint_as_float(LargestOf(from, count, [](float x) { return r1::MagnitudeBits(x); }));
  const float inverse = amax > 0 ? r1::Divide(127.0f, amax) : 0.0f;
  StoreBytes(
      from, count, [inverse](float x) { return r1::QuantizedByte(x, inverse); }, to,
      __float_as_uint(r1::Divide(amax, 127.0f)), scale_at);
}

__device__ void StoreFp8(const float* from, int64_t count, std::byte* to, std::byte* scale_at) {
  // A NaN has larger bits than infinity, which is larger than every number.
  const unsigned largest =
      LargestOf(from, count, [](float x) { return __float_as_uint(x) & 0x7fffffffu; });
  const bool finite = largest < 0x7f800000u;
  const float amax = __uint_as_float(largest);
  const float inverse = finite ? Fp8Inverse(amax) : 0.0f;
  StoreBytes(
      from, count,
      [=](float x) { return finite ? F32ToFp8(r1::Multiply(x, inverse)) : uint8_t{0}; }, to,
      finite ? __float_as_uint(r1::Divide(amax, kFp8Largest)) : kFp8NanScale, scale_at);
}

// Rotates a row in place. With `staged`, also leaves the whole row there.
__device__ void RotateRow(const RopeKvWriteParams& p, int64_t token, float* row, float* staged) {
  constexpr int kPairs = kMaxHeadDim / 2 / 32;  // of a lane; all their loads are in flight at once
  const int lane = threadIdx.x % 32;
  const float* const cosines = p.cosines + token * p.half;
  const float* const sines = p.sines + token * p.half;
  float2 both[kPairs], angle[kPairs];
#pragma unroll
  for (int k = 0; k < kPairs; ++k) {
    const int pair = lane + 32 * k;
    if (pair >= p.half) continue;
    both[k] = rotary::Pair(row, pair, p.half, p.neighbours).Load();
    angle[k] = make_float2(cosines[pair], sines[pair]);
  }
#pragma unroll
  for (int k = 0; k < kPairs; ++k) {
    const int pair = lane + 32 * k;
    if (pair >= p.half) continue;
    const float2 rotated = rotary::Rotated(both[k], angle[k].x, angle[k].y);
    rotary::Pair(row, pair, p.half, p.neighbours).Store(rotated);
    if (staged != nullptr) rotary::Pair(staged, pair, p.half, p.neighbours).Store(rotated);
  }
  if (staged == nullptr) return;
  for (int64_t i = 2 * p.half + lane; i < p.head_dim; i += 32) staged[i] = row[i];
  __syncwarp();
}

// Stores one head of K or V, which lies at `from`, in a slot of the pool.
__device__ void StoreRow(const RopeKvWriteParams& p, int64_t slot, int64_t head, bool is_value,
                         const float* from) {
  const KvLayerView& kv = p.kv;
  const int64_t block = slot >> kv.block_size_log2;
  const int64_t in_block = slot - (block << kv.block_size_log2);
  const int64_t row =
      block * kv.block_stride + in_block * kv.token_stride + (is_value ? kv.value_offset : 0);
  const int64_t to = row + head * kv.head_stride;
  if (kv.type == KvType::kF32) {
    StoreFloats(from, p.head_dim, static_cast<float*>(kv.base) + to);
  } else if (kv.type == KvType::kInt8 || kv.type == KvType::kFp8) {
    std::byte* const base = static_cast<std::byte*>(kv.base);
    std::byte* const scale = base + row + kv.scale_offset + head * int64_t{sizeof(float)};
    if (kv.type == KvType::kInt8) {
      StoreInt8(from, p.head_dim, base + to, scale);
    } else {
      StoreFp8(from, p.head_dim, base + to, scale);
    }
  } else {
    StoreHalves(from, p.head_dim, {kv.type, is_value && p.finite_values},
                static_cast<uint16_t*>(kv.base) + to);
  }
}

__device__ void RotateAndStore(const RopeKvWriteParams& p) {
  BeginKernel();
  const int64_t token = blockIdx.x;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int64_t row = int64_t{blockIdx.y} * (blockDim.x / 32) + warp;
  const int64_t kv_head = row - p.query_heads;  // K's heads, then V's; negative: a head of Q
  if (kv_head >= 2 * p.kv_heads) return;
  const bool is_value = kv_head >= p.kv_heads;
  const int64_t head = is_value ? kv_head - p.kv_heads : kv_head;
  const int64_t slot = kv_head < 0 ? -1 : p.slot_mapping[token];
  const float* from = nullptr;
  if (is_value) {
    from = p.v + token * p.stride + head * p.head_dim;
  } else if (float* const rotated = p.qk + token * p.stride + row * p.head_dim; p.half > 0) {
    float* const staged = slot < 0 ? nullptr : SharedMemory<float>() + warp * p.staged_floats;
    RotateRow(p, token, rotated, staged);
    from = staged;
  } else {
    from = rotated;
  }
  if (slot >= 0) StoreRow(p, slot, head, is_value, from);
}

}  // namespace
}  // namespace baton::rope_kv_write

extern "C" __global__ void __launch_bounds__(128)
    baton_rope_kv_write(const __grid_constant__ baton::RopeKvWriteParams p) {
  baton::rope_kv_write::RotateAndStore(p);
}

BATON_KERNEL(baton_rope_kv_write, baton::RopeKvWriteParams);
