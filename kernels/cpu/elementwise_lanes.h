// Elementwise kernels over Lanes: norm, gate, int8 activations, rotation and KV writes (NUMERICS
// §3, §5, §6, §7).
//
// The code serves AVX2 and AVX-512: elementwise_avx2.cc and elementwise_avx512_no_vnni.cc include
// it after their vector_math header.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/activation_lanes.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/fp8.h"

namespace baton {
namespace {

inline float SumSquares16(const float* x, int64_t cols) {
  Lanes sum = Set(0.0f);
  int64_t i = 0;
  for (; i + kLanes <= cols; i += kLanes) {
    const Lanes value = Load(x + i);
    sum = Fma(value, value, sum);
  }
  if (i < cols) {
    const Lanes value = LoadFirst(x + i, cols - i);
    sum = Fma(value, value, sum);  // a square is never −0, so adding +0 changes nothing
  }
  return Tree16(sum);
}

inline float SquareRoot(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

inline void RmsNormOverLanes(const RmsNormArgs& args, int64_t token_begin, int64_t token_end) {
  for (int64_t token = token_begin; token < token_end; ++token) {
    const float* x = args.x + token * args.cols;
    const float* w = args.weight;
    const float mean = SumSquares16(x, args.cols) / static_cast<float>(args.cols);
    const Lanes inverse = Set(1.0f / SquareRoot(mean + args.epsilon));
    WriteRow(
        args.out, token, args.cols,
        [=](int64_t i, auto registers, Lanes* to) __attribute__((always_inline)) {
          Unroll<decltype(registers)::value>([&](int k) __attribute__((always_inline)) {
            const int64_t at = i + k * kLanes;
            to[k] = Multiply(Multiply(Load(x + at), inverse), Load(w + at));
          });
        },
        [=](int64_t i, int64_t count) {
          return Multiply(Multiply(LoadFirst(x + i, count), inverse), LoadFirst(w + i, count));
        });
  }
}

inline void SiluMulOverLanes(const SiluMulArgs& args, int64_t token_begin, int64_t token_end) {
  for (int64_t token = token_begin; token < token_end; ++token) {
    const float* gate = args.gate_up + token * 2 * args.cols;
    const float* up = gate + args.cols;
    GateRow(gate, up, args.cols, ActivationsAt(args.out, token, args.cols, 0));
  }
}

inline void QuantizeOverLanes(const float* x, int64_t cols, const Activations& out,
                              int64_t token_begin, int64_t token_end) {
  for (int64_t token = token_begin; token < token_end; ++token) {
    const float* row = x + token * cols;
    WriteRow(
        out, token, cols,
        [=](int64_t i, auto registers, Lanes* to) __attribute__((always_inline)) {
          Unroll<decltype(registers)::value>([&](int k) __attribute__((always_inline)) {
            to[k] = Load(row + i + k * kLanes);
          });
        },
        [=](int64_t i, int64_t count) { return LoadFirst(row + i, count); });
  }
}

// ---- rotation -------------------------------------------------------------------------------

inline void RotateOne(float* first, float* second, float cosine, float sine) {
  const float a = *first;
  const float b = *second;
  *first = __builtin_fmaf(a, cosine, -(b * sine));
  *second = __builtin_fmaf(a, sine, b * cosine);
}

// Rotates pairs (2i, 2i + 1), eight pairs at a time. Every head uses the same coefficients.
inline void RotateNeighbours(const RopeArgs& args, float* row, const float* cosines,
                             const float* sines) {
  int64_t i = 0;
  for (; i + 8 <= args.half; i += 8) {
    const PairCoefficients by = LoadPairCoefficients(cosines + i, sines + i);
    for (int64_t head = 0; head < args.heads; ++head) {
      float* x = row + head * args.head_dim + 2 * i;
      Store(x, RotatePairs(Load(x), by));
    }
  }
  for (; i < args.half; ++i) {
    for (int64_t head = 0; head < args.heads; ++head) {
      float* x = row + head * args.head_dim + 2 * i;
      RotateOne(x, x + 1, cosines[i], sines[i]);
    }
  }
}

// Rotates pairs (i, i + half), sixteen pairs at a time.
inline void RotateHalves(const RopeArgs& args, float* row, const float* cosines,
                         const float* sines) {
  int64_t i = 0;
  for (; i + kLanes <= args.half; i += kLanes) {
    const Lanes cosine = Load(cosines + i);
    const Lanes sine = Load(sines + i);
    for (int64_t head = 0; head < args.heads; ++head) {
      float* first = row + head * args.head_dim + i;
      float* second = first + args.half;
      const Lanes a = Load(first);
      const Lanes b = Load(second);
      Store(first, Fma(a, cosine, Negate(Multiply(b, sine))));
      Store(second, Fma(a, sine, Multiply(b, cosine)));
    }
  }
  for (; i < args.half; ++i) {
    for (int64_t head = 0; head < args.heads; ++head) {
      float* first = row + head * args.head_dim + i;
      RotateOne(first, first + args.half, cosines[i], sines[i]);
    }
  }
}

inline void RopeOverLanes(const RopeArgs& args, int64_t token_begin, int64_t token_end) {
  for (int64_t token = token_begin; token < token_end; ++token) {
    float* row = args.x + token * args.stride;
    const float* cosines = args.cosines + token * args.half;
    const float* sines = args.sines + token * args.half;
    if (args.neighbours) {
      RotateNeighbours(args, row, cosines, sines);
    } else {
      RotateHalves(args, row, cosines, sines);
    }
  }
}

// ---- KV write -------------------------------------------------------------------------------

template <KvType kType>
inline void NarrowRow(const float* source, int64_t count, void* base, int64_t offset) {
  uint16_t* out = static_cast<uint16_t*>(base) + offset;
  const auto narrow = [](uint16_t* to, Lanes value) {
    if constexpr (kType == KvType::kF16) {
      StoreF16(to, value);
    } else {
      StoreBF16(to, value);
    }
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) narrow(out + i, Load(source + i));
  if (i == count) return;
  uint16_t last[kLanes];
  narrow(last, LoadFirst(source + i, count - i));
  std::memcpy(out + i, last, static_cast<size_t>(count - i) * sizeof(uint16_t));
}

// Stores the products of one head with `inverse` as bytes. store(to, lanes) stores sixteen.
template <typename Store>
inline void StoreScaledBytes(const float* source, int64_t count, Lanes inverse, std::byte* to,
                             const Store& store) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(to + i, Multiply(Load(source + i), inverse));
  if (i == count) return;
  std::byte last[kLanes];
  store(last, Multiply(LoadFirst(source + i, count - i), inverse));
  std::memcpy(to + i, last, static_cast<size_t>(count - i));
}

inline float LargestMagnitude(const float* source, int64_t count) {
  Lanes largest = Set(0.0f);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) largest = Maximum(Magnitude(Load(source + i)), largest);
  const Lanes last = LoadFirst(source + i, count - i);
  return LargestLane(Maximum(Magnitude(last), largest));
}

// Stores one head as int8 with its scale.
inline void StoreInt8Row(const float* source, int64_t count, std::byte* values, std::byte* scale) {
  const float amax = LargestMagnitude(source, count);
  StoreScaledBytes(
      source, count, Set(amax > 0.0f ? 127.0f / amax : 0.0f), values,
      [](std::byte* to, Lanes lanes) { StoreRounded8(reinterpret_cast<int8_t*>(to), lanes); });
  const float row_scale = amax / 127.0f;
  std::memcpy(scale, &row_scale, sizeof(row_scale));
}

// Sums of x · 0 are zeros, unless an x is infinite or NaN.
inline bool IsFinite(const float* source, int64_t count) {
  const Lanes zero = Set(0.0f);
  Lanes sum = zero;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) sum = Fma(Load(source + i), zero, sum);
  return Tree16(Fma(LoadFirst(source + i, count - i), zero, sum)) == 0.0f;
}

// Stores one head as e4m3 with its scale.
inline void StoreFp8Row(const float* source, int64_t count, std::byte* values, std::byte* scale) {
  if (!IsFinite(source, count)) {
    std::memset(values, 0, static_cast<size_t>(count));
    std::memcpy(scale, &kFp8NanScale, sizeof(kFp8NanScale));
    return;
  }
  const float amax = LargestMagnitude(source, count);
  StoreScaledBytes(source, count, Set(Fp8Inverse(amax)), values, [](std::byte* to, Lanes lanes) {
    StoreFp8(reinterpret_cast<uint8_t*>(to), lanes);
  });
  const float row_scale = amax / kFp8Largest;
  std::memcpy(scale, &row_scale, sizeof(row_scale));
}

inline void StoreRow(const float* source, int64_t count, const KvLayerView& kv, int64_t offset) {
  switch (kv.type) {
    case KvType::kF32:
      std::memcpy(static_cast<float*>(kv.base) + offset, source,
                  static_cast<size_t>(count) * sizeof(float));
      break;
    case KvType::kF16:
      NarrowRow<KvType::kF16>(source, count, kv.base, offset);
      break;
    case KvType::kBF16:
      NarrowRow<KvType::kBF16>(source, count, kv.base, offset);
      break;
    case KvType::kInt8:
    case KvType::kFp8:  // rows with scales have functions of their own
      break;
  }
}

inline void KvWriteOverLanes(const KvWriteArgs& args, int64_t token_begin, int64_t token_end) {
  const KvLayerView& kv = args.kv;
  for (int64_t token = token_begin; token < token_end; ++token) {
    const int64_t slot = args.slot_mapping[token];
    if (slot < 0) continue;
    const int64_t block = slot >> kv.block_size_log2;
    const int64_t in_block = slot - (block << kv.block_size_log2);
    for (int64_t head = 0; head < args.kv_heads; ++head) {
      const int64_t source = token * args.stride + head * args.head_dim;
      const int64_t row = block * kv.block_stride + in_block * kv.token_stride;
      const int64_t target = row + head * kv.head_stride;
      if (HasScales(kv.type)) {
        const auto store = kv.type == KvType::kInt8 ? StoreInt8Row : StoreFp8Row;
        auto* k = static_cast<std::byte*>(kv.base);
        std::byte* v = k + kv.value_offset;
        const int64_t scale = row + kv.scale_offset + head * int64_t{sizeof(float)};
        store(args.k + source, args.head_dim, k + target, k + scale);
        store(args.v + source, args.head_dim, v + target, v + scale);
        continue;
      }
      StoreRow(args.k + source, args.head_dim, kv, target);
      StoreRow(args.v + source, args.head_dim, kv, target + kv.value_offset);
    }
  }
}

}  // namespace
}  // namespace baton
