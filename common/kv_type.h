// The element type of stored K and V: a fact of pools, kernels and the wire alike.
#pragma once

#include <cstdint>
#include <string_view>

namespace baton {

enum class KvType : uint8_t { kF32, kF16, kBF16 };

constexpr std::string_view KvTypeName(KvType type) {
  switch (type) {
    case KvType::kF32:
      return "f32";
    case KvType::kF16:
      return "f16";
    case KvType::kBF16:
      return "bf16";
  }
  return "unknown";
}
constexpr int64_t KvTypeBytes(KvType type) { return type == KvType::kF32 ? 4 : 2; }

}  // namespace baton
