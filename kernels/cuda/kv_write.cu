// Stores K and V in the pool (NUMERICS §7, NUMERICS_T1 §4).
//
// Predicted limit: memory. It reads 4 bytes and writes the element's bytes for each value.
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/kv_params.h"
#include "kernels/elementary.h"
#include "kernels/fp8.h"
#include "kernels/half.h"

namespace baton::kv_write {
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

__device__ void WriteRow(const KvWriteParams& p) {
  BeginKernel();
  const int64_t token = blockIdx.x;
  const int row = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32;
  const bool is_value = row >= p.kv_heads;
  const int64_t head = row - (is_value ? p.kv_heads : 0);
  if (head >= p.kv_heads) return;
  const int64_t slot = p.slot_mapping[token];
  if (slot < 0) return;
  const KvLayerView& kv = p.kv;
  const int64_t block = slot >> kv.block_size_log2;
  const int64_t in_block = slot - (block << kv.block_size_log2);
  const float* const from = (is_value ? p.v : p.k) + token * p.stride + head * p.head_dim;
  const int64_t key_row =
      block * kv.block_stride + in_block * kv.token_stride + (is_value ? kv.value_offset : 0);
  const int64_t to = key_row + head * kv.head_stride;
  if (kv.type == KvType::kF32) {
    StoreFloats(from, p.head_dim, static_cast<float*>(kv.base) + to);
  } else if (kv.type == KvType::kInt8 || kv.type == KvType::kFp8) {
    std::byte* const base = static_cast<std::byte*>(kv.base);
    std::byte* const scale = base + key_row + kv.scale_offset + head * int64_t{sizeof(float)};
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

}  // namespace
}  // namespace baton::kv_write

extern "C" __global__ void __launch_bounds__(128)
    baton_kv_write(const __grid_constant__ baton::KvWriteParams p) {
  baton::kv_write::WriteRow(p);
}

BATON_KERNEL(baton_kv_write, baton::KvWriteParams);
