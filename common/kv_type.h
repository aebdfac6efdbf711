// Element type of stored K and V, shared by pools, kernels and the wire.
#pragma once

#include <cstdint>
#include <string_view>

namespace baton {

// kInt8 stores a byte per value, and one f32 scale per token, head, and K or V (NUMERICS §7).
enum class KvType : uint8_t { kF32, kF16, kBF16, kInt8 };

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
  }
  return "unknown";
}
// Returns the bytes of one element. Scales are not counted.
constexpr int64_t KvTypeBytes(KvType type) {
  return type == KvType::kF32 ? 4 : type == KvType::kInt8 ? 1 : 2;
}

}  // namespace baton
