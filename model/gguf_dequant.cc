#include "model/gguf_dequant.h"

#include <cstdint>
#include <cstring>

#include "common/str_cat.h"
#include "kernels/half.h"

namespace baton {
namespace {

constexpr int kBlock = 32;  // values of the Q formats below

uint16_t LoadHalf(const std::byte* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return bits;
}

// Nibbles: the low ones are values 0…15 of the block, the high ones 16…31.
int LowNibble(std::byte b) { return std::to_integer<int>(b & std::byte{0x0f}); }
int HighNibble(std::byte b) { return std::to_integer<int>(b >> 4); }

void DequantizeQ8_0(const std::byte* block, float* out) {
  const float scale = F16ToF32(LoadHalf(block));
  for (int i = 0; i < kBlock; ++i) {
    out[i] = scale * static_cast<float>(static_cast<int8_t>(block[2 + i]));
  }
}

void DequantizeQ4_0(const std::byte* block, float* out) {
  const float scale = F16ToF32(LoadHalf(block));
  for (int i = 0; i < kBlock / 2; ++i) {
    out[i] = scale * static_cast<float>(LowNibble(block[2 + i]) - 8);
    out[i + kBlock / 2] = scale * static_cast<float>(HighNibble(block[2 + i]) - 8);
  }
}

void DequantizeQ4_1(const std::byte* block, float* out) {
  const float scale = F16ToF32(LoadHalf(block));
  const float least = F16ToF32(LoadHalf(block + 2));
  for (int i = 0; i < kBlock / 2; ++i) {
    out[i] = scale * static_cast<float>(LowNibble(block[4 + i])) + least;
    out[i + kBlock / 2] = scale * static_cast<float>(HighNibble(block[4 + i])) + least;
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
    default:
      return absl::InvalidArgumentError(
          StrCat("tensor type ", GgmlTypeName(type), " is not supported"));
  }
}

}  // namespace baton
