// Plain elementwise kernels: norm, gate, int8 activations, rotation and KV writes (NUMERICS §3, §5,
// §6, §7).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/plain_kernels.h"
#include "kernels/cpu/plain_math.h"
#include "kernels/fp8.h"
#include "kernels/half.h"

namespace baton::plain {
namespace {

// Writes one row in every form that `out` requests. value(i) returns element i.
template <typename Value>
void WriteRow(const Activations& out, int64_t token, int64_t cols, const Value& value) {
  for (int64_t begin = 0; begin < cols; begin += kQuantGroup) {
    const int64_t count = std::min<int64_t>(kQuantGroup, cols - begin);
    float y[kQuantGroup];
    for (int64_t i = 0; i < count; ++i) y[i] = value(begin + i);
    if (out.f32 != nullptr) std::copy_n(y, count, out.f32 + token * cols + begin);
    if (out.q8 != nullptr) {
      const int64_t group = (token * cols + begin) / kQuantGroup;
      QuantizeGroup(y, out.q8 + token * cols + begin, out.scale + group, out.scaled_sum + group);
    }
  }
}

void StoreRow(const float* source, int64_t count, KvType type, void* base, int64_t offset) {
  if (type == KvType::kF32) {
    std::memcpy(static_cast<float*>(base) + offset, source, count * sizeof(float));
    return;
  }
  auto* destination = static_cast<uint16_t*>(base) + offset;
  for (int64_t i = 0; i < count; ++i) {
    destination[i] = type == KvType::kF16 ? F32ToF16(source[i]) : F32ToBF16(source[i]);
  }
}

void StoreInt8Row(const float* source, int64_t count, std::byte* values, std::byte* scale) {
  const Int16Row row = QuantizeRow(source, count, 127.0f);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<std::byte>(row.values[i] & 0xff);
  std::memcpy(scale, &row.scale, sizeof(row.scale));
}

void StoreFp8Row(const float* source, int64_t count, std::byte* values, std::byte* scale) {
  float amax = 0;
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    amax = std::max(amax, std::fabs(source[i]));
    finite = finite && std::isfinite(source[i]);
  }
  const float row_scale = finite ? amax / kFp8Largest : std::bit_cast<float>(kFp8NanScale);
  const float inverse = finite ? Fp8Inverse(amax) : 0.0f;
  for (int64_t i = 0; i < count; ++i) {
    values[i] = finite ? static_cast<std::byte>(F32ToFp8(source[i] * inverse)) : std::byte{0};
  }
  std::memcpy(scale, &row_scale, sizeof(row_scale));
}

}  // namespace

void RmsNorm(const RmsNormArgs& args, int64_t token_begin, int64_t token_end) {
  for (int64_t token = token_begin; token < token_end; ++token) {
    const float* x = args.x + token * args.cols;
    const float mean = Dot16(x, x, args.cols) / static_cast<float>(args.cols);
    const float inverse = 1.0f / std::sqrt(mean + args.epsilon);
    WriteRow(args.out, token, args.cols,
             [&](int64_t i) { return (x[i] * inverse) * args.weight[i]; });
  }
}

void SiluMul(const SiluMulArgs& args, int64_t token_begin, int64_t token_end) {
  for (int64_t token = token_begin; token < token_end; ++token) {
    const float* gate = args.gate_up + token * 2 * args.cols;
    const float* up = gate + args.cols;
    WriteRow(args.out, token, args.cols, [&](int64_t i) { return Silu(gate[i]) * up[i]; });
  }
}

void GatedMatMul(const MatMulArgs& product, const Activations& out, int64_t row_begin,
                 int64_t row_end, int64_t token_begin, int64_t token_end) {
  const int64_t cols = product.weight.rows / 2;
  MatMul(product, row_begin, row_end, token_begin, token_end);
  MatMul(product, cols + row_begin, cols + row_end, token_begin, token_end);
  for (int64_t token = token_begin; token < token_end; ++token) {
    const float* gate = product.out + token * product.out_stride + row_begin;
    WriteRow(ActivationsAt(out, token, cols, row_begin), 0, row_end - row_begin,
             [&](int64_t i) { return Silu(gate[i]) * gate[cols + i]; });
  }
}

void Quantize(const float* x, int64_t cols, const Activations& out, int64_t token_begin,
              int64_t token_end) {
  for (int64_t token = token_begin; token < token_end; ++token) {
    const float* row = x + token * cols;
    WriteRow(out, token, cols, [&](int64_t i) { return row[i]; });
  }
}

void Rope(const RopeArgs& args, int64_t token_begin, int64_t token_end) {
  const int64_t step = args.neighbours ? 2 : 1;  // between first values of adjacent pairs
  const int64_t apart = args.neighbours ? 1 : args.half;
  for (int64_t token = token_begin; token < token_end; ++token) {
    const float* cosines = args.cosines + token * args.half;
    const float* sines = args.sines + token * args.half;
    for (int64_t head = 0; head < args.heads; ++head) {
      float* x = args.x + token * args.stride + head * args.head_dim;
      for (int64_t i = 0; i < args.half; ++i) {
        const float a = x[i * step];
        const float b = x[i * step + apart];
        x[i * step] = std::fma(a, cosines[i], -(b * sines[i]));
        x[i * step + apart] = std::fma(a, sines[i], b * cosines[i]);
      }
    }
  }
}

void KvWrite(const KvWriteArgs& args, int64_t token_begin, int64_t token_end) {
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
        std::byte* k = static_cast<std::byte*>(kv.base);
        std::byte* v = k + kv.value_offset;
        const int64_t scale = row + kv.scale_offset + head * int64_t{sizeof(float)};
        store(args.k + source, args.head_dim, k + target, k + scale);
        store(args.v + source, args.head_dim, v + target, v + scale);
        continue;
      }
      StoreRow(args.k + source, args.head_dim, kv.type, kv.base, target);
      StoreRow(args.v + source, args.head_dim, kv.type, kv.base, target + kv.value_offset);
    }
  }
}

}  // namespace baton::plain
