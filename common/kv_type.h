// Element type of stored K and V, shared by pools, kernels and the wire.
#pragma once

#include <cstdint>
#include <string_view>

namespace baton {

// kInt8 and kFp8 (e4m3) store a byte per value, and one f32 scale per token, head, and K or V
// (NUMERICS §7).
enum class KvType : uint8_t { kF32, kF16, kBF16, kInt8, kFp8 };

constexpr std::string_view KvTypeName(KvType type) {
  switch (type) {
    case KvType::kF32:
      return "f32";
    case KvType::kF16:
      return "f16";
    case KvType::kBF16:
      return "bf16";
    case KvType::kInt8:
      return "int8";
    case KvType::kFp8:
      return "fp8";
  }
  return "unknown";
}
// Returns true for types that store bytes and scales.
constexpr bool HasScales(KvType type) { return type == KvType::kInt8 || type == KvType::kFp8; }
// Returns the bytes of one element. Scales are not counted.
constexpr int64_t KvTypeBytes(KvType type) {
  return type == KvType::kF32 ? 4 : HasScales(type) ? 1 : 2;
}

}  // namespace baton
