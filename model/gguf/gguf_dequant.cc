#include "model/gguf/gguf_dequant.h"

#include <cstdint>
#include <cstring>

#include "common/str_cat.h"
#include "kernels/half.h"

namespace baton {
namespace {

constexpr int kBlock = 32;  // values in a block of the types without K

uint16_t LoadHalf(const std::byte* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return bits;
}

// The low nibbles are values 0…15 of the block, the high nibbles are values 16…31.
int LowNibble(std::byte b) { return std::to_integer<int>(b & std::byte{0x0f}); }
int HighNibble(std::byte b) { return std::to_integer<int>(b >> 4); }

void DequantizeQ8_0(const std::byte* block, float* out) {
  const float scale = F16ToF32(LoadHalf(block));
  for (int i = 0; i < kBlock; ++i) {
    out[i] = scale * static_cast<float>(static_cast<int8_t>(block[2 + i]));
  }
}

// Converts a block of 16 bytes, which hold the low four bits of 32 values as nibbles. widen(i,
// nibble) returns value i.
template <typename Widen>
void WidenBlock(const std::byte* nibbles, float* out, const Widen& widen) {
  for (int i = 0; i < kBlock / 2; ++i) {
    const int j = i + kBlock / 2;
    out[i] = widen(i, LowNibble(nibbles[i]));
    out[j] = widen(j, HighNibble(nibbles[i]));
  }
}

void DequantizeQ4_0(const std::byte* block, float* out) {
  const float scale = F16ToF32(LoadHalf(block));
  WidenBlock(block + 2, out, [scale](int, int q) { return scale * static_cast<float>(q - 8); });
}

void DequantizeQ4_1(const std::byte* block, float* out) {
  const float scale = F16ToF32(LoadHalf(block));
  const float least = F16ToF32(LoadHalf(block + 2));
  WidenBlock(block + 4, out,
             [scale, least](int, int q) { return scale * static_cast<float>(q) + least; });
}

// Returns bit 4 of value i of the block, from 32 bits in the order of the values.
int FifthBit(const std::byte* bits, int i) {
  return (std::to_integer<int>(bits[i / 8]) >> i % 8 & 1) << 4;
}

void DequantizeQ5_0(const std::byte* block, float* out) {
  const float scale = F16ToF32(LoadHalf(block));
  WidenBlock(block + 6, out, [scale, fifth = block + 2](int i, int low) {
    return scale * static_cast<float>((low | FifthBit(fifth, i)) - 16);
  });
}

void DequantizeQ5_1(const std::byte* block, float* out) {
  const float scale = F16ToF32(LoadHalf(block));
  const float least = F16ToF32(LoadHalf(block + 2));
  WidenBlock(block + 8, out, [scale, least, fifth = block + 4](int i, int low) {
    return scale * static_cast<float>(low | FifthBit(fifth, i)) + least;
  });
}

// The K types: 256 values in groups of 32 (Q4_K, Q5_K) or 16 (Q6_K), each with an integer scale.

// Returns number `index` of the packed six-bit numbers: scales are 0…7, minima are 8…15. The upper
// two bits of numbers 4…7 of each kind lie in the bytes of numbers 0…3.
int SixBits(const std::byte* packed, int index) {
  const auto byte = [packed](int i) { return std::to_integer<int>(packed[i]); };
  const int kind = index / 8;  // 0: scale, 1: minimum
  const int i = index % 8;
  if (i < 4) return byte(4 * kind + i) & 63;
  return (byte(4 + i) >> 4 * kind & 15) | byte(4 * kind + i - 4) >> 6 << 4;
}

// Converts Q4_K and Q5_K. Two groups share 32 bytes of nibbles; the first group has the low
// nibbles. whole(group, i, nibble) returns the unsigned number of value i of a group.
template <typename Whole>
void WidenGroups(const std::byte* block, const std::byte* nibbles, float* out, const Whole& whole) {
  const float scale = F16ToF32(LoadHalf(block));
  const float least = F16ToF32(LoadHalf(block + 2));
  for (int g = 0; g < 8; ++g) {
    const float d = scale * static_cast<float>(SixBits(block + 4, g));
    const float m = least * static_cast<float>(SixBits(block + 4, 8 + g));
    for (int i = 0; i < 32; ++i) {
      const std::byte both = nibbles[g / 2 * 32 + i];
      const int q = whole(g, i, g % 2 == 0 ? LowNibble(both) : HighNibble(both));
      *out++ = d * static_cast<float>(q) - m;
    }
  }
}

void DequantizeQ4_K(const std::byte* block, float* out) {
  WidenGroups(block, block + 16, out, [](int, int, int low) { return low; });
}

void DequantizeQ5_K(const std::byte* block, float* out) {
  WidenGroups(block, block + 48, out, [fifth = block + 16](int g, int i, int low) {
    return low | (std::to_integer<int>(fifth[i]) >> g & 1) << 4;
  });
}

void DequantizeQ6_K(const std::byte* block, float* out) {
  const float scale = F16ToF32(LoadHalf(block + 208));
  for (int g = 0; g < 8; ++g) {
    for (int i = 0; i < 32; ++i) {
      const std::byte low = block[g / 4 * 64 + g % 2 * 32 + i];
      const int high = std::to_integer<int>(block[128 + g / 4 * 32 + i]) >> g % 4 * 2 & 3;
      const int q = (g % 4 < 2 ? LowNibble(low) : HighNibble(low)) | high << 4;
      const auto factor = static_cast<int8_t>(block[192 + 2 * g + i / 16]);
      *out++ = scale * static_cast<float>(factor) * static_cast<float>(q - 32);
    }
  }
}

void DequantizeF16(const std::byte* block, float* out) { *out = F16ToF32(LoadHalf(block)); }
void DequantizeBF16(const std::byte* block, float* out) { *out = BF16ToF32(LoadHalf(block)); }

template <typename DequantizeBlock>
void ForEachBlock(GgmlType type, std::span<const std::byte> data, std::span<float> values,
                  DequantizeBlock dequantize) {
  const size_t block_bytes = GgmlBlockBytes(type);
  const size_t block_values = GgmlBlockValues(type);
  const size_t blocks = values.size() / block_values;
  for (size_t i = 0; i < blocks; ++i) {
    dequantize(data.data() + i * block_bytes, values.data() + i * block_values);
  }
}

}  // namespace

absl::Status Dequantize(GgmlType type, std::span<const std::byte> data, std::span<float> values) {
  const size_t block_values = GgmlBlockValues(type);
  if (values.size() % block_values != 0 ||
      data.size() != values.size() / block_values * GgmlBlockBytes(type)) {
    return absl::InvalidArgumentError(StrCat(data.size(), " bytes are not ", values.size(),
                                             " values of type ", GgmlTypeName(type)));
  }
  switch (type) {
    case GgmlType::kF32:
      if (!data.empty()) std::memcpy(values.data(), data.data(), data.size());
      return absl::OkStatus();
    case GgmlType::kF16:
      ForEachBlock(type, data, values, DequantizeF16);
      return absl::OkStatus();
    case GgmlType::kBF16:
      ForEachBlock(type, data, values, DequantizeBF16);
      return absl::OkStatus();
    case GgmlType::kQ8_0:
      ForEachBlock(type, data, values, DequantizeQ8_0);
      return absl::OkStatus();
    case GgmlType::kQ4_0:
      ForEachBlock(type, data, values, DequantizeQ4_0);
      return absl::OkStatus();
    case GgmlType::kQ4_1:
      ForEachBlock(type, data, values, DequantizeQ4_1);
      return absl::OkStatus();
    case GgmlType::kQ5_0:
      ForEachBlock(type, data, values, DequantizeQ5_0);
      return absl::OkStatus();
    case GgmlType::kQ5_1:
      ForEachBlock(type, data, values, DequantizeQ5_1);
      return absl::OkStatus();
    case GgmlType::kQ4_K:
      ForEachBlock(type, data, values, DequantizeQ4_K);
      return absl::OkStatus();
    case GgmlType::kQ5_K:
      ForEachBlock(type, data, values, DequantizeQ5_K);
      return absl::OkStatus();
    case GgmlType::kQ6_K:
      ForEachBlock(type, data, values, DequantizeQ6_K);
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(
          StrCat("tensor type ", GgmlTypeName(type), " is not supported"));
  }
}

}  // namespace baton
