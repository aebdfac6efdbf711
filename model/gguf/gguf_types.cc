#include "model/gguf/gguf_types.h"

#include <algorithm>
#include <iterator>

#include "common/check.h"

namespace baton {
namespace {

struct TensorTypeTraits {
  GgmlType type;
  std::string_view name;
  uint16_t block_values;
  uint16_t block_bytes;
};

constexpr TensorTypeTraits kTensorTypes[] = {
    {GgmlType::kF32, "F32", 1, 4},
    {GgmlType::kF16, "F16", 1, 2},
    {GgmlType::kQ4_0, "Q4_0", 32, 18},
    {GgmlType::kQ4_1, "Q4_1", 32, 20},
    {GgmlType::kQ5_0, "Q5_0", 32, 22},
    {GgmlType::kQ5_1, "Q5_1", 32, 24},
    {GgmlType::kQ8_0, "Q8_0", 32, 34},
    {GgmlType::kQ8_1, "Q8_1", 32, 36},
    {GgmlType::kQ2_K, "Q2_K", 256, 84},
    {GgmlType::kQ3_K, "Q3_K", 256, 110},
    {GgmlType::kQ4_K, "Q4_K", 256, 144},
    {GgmlType::kQ5_K, "Q5_K", 256, 176},
    {GgmlType::kQ6_K, "Q6_K", 256, 210},
    {GgmlType::kQ8_K, "Q8_K", 256, 292},
    {GgmlType::kIQ2_XXS, "IQ2_XXS", 256, 66},
    {GgmlType::kIQ2_XS, "IQ2_XS", 256, 74},
    {GgmlType::kIQ3_XXS, "IQ3_XXS", 256, 98},
    {GgmlType::kIQ1_S, "IQ1_S", 256, 50},
    {GgmlType::kIQ4_NL, "IQ4_NL", 32, 18},
    {GgmlType::kIQ3_S, "IQ3_S", 256, 110},
    {GgmlType::kIQ2_S, "IQ2_S", 256, 82},
    {GgmlType::kIQ4_XS, "IQ4_XS", 256, 136},
    {GgmlType::kI8, "I8", 1, 1},
    {GgmlType::kI16, "I16", 1, 2},
    {GgmlType::kI32, "I32", 1, 4},
    {GgmlType::kI64, "I64", 1, 8},
    {GgmlType::kF64, "F64", 1, 8},
    {GgmlType::kIQ1_M, "IQ1_M", 256, 56},
    {GgmlType::kBF16, "BF16", 1, 2},
    {GgmlType::kTQ1_0, "TQ1_0", 256, 54},
    {GgmlType::kTQ2_0, "TQ2_0", 256, 66},
    {GgmlType::kMXFP4, "MXFP4", 32, 17},
    {GgmlType::kNVFP4, "NVFP4", 64, 36},
    {GgmlType::kQ1_0, "Q1_0", 128, 18},
};

const TensorTypeTraits* FindTraits(GgmlType type) {
  const auto* found = std::find_if(std::begin(kTensorTypes), std::end(kTensorTypes),
                                   [type](const auto& traits) { return traits.type == type; });
  return found == std::end(kTensorTypes) ? nullptr : found;
}

const TensorTypeTraits& TraitsOf(GgmlType type) {
  const TensorTypeTraits* traits = FindTraits(type);
  CHECK(traits != nullptr) << "tensor type " << static_cast<uint32_t>(type);
  return *traits;
}

struct ValueTypeTraits {
  std::string_view name;
  size_t bytes;
  bool integer;
};

constexpr ValueTypeTraits kValueTypes[] = {
    {"uint8", 1, true},    {"int8", 1, true},   {"uint16", 2, true},   {"int16", 2, true},
    {"uint32", 4, true},   {"int32", 4, true},  {"float32", 4, false}, {"bool", 1, false},
    {"string", 0, false},  {"array", 0, false}, {"uint64", 8, true},   {"int64", 8, true},
    {"float64", 8, false},
};

const ValueTypeTraits& TraitsOf(GgufValueType type) {
  CHECK_LT(static_cast<uint32_t>(type), std::size(kValueTypes));
  return kValueTypes[static_cast<uint32_t>(type)];
}

}  // namespace

std::optional<GgmlType> GgmlTypeFromNumber(uint32_t number) {
  const TensorTypeTraits* traits = FindTraits(static_cast<GgmlType>(number));
  return traits == nullptr ? std::nullopt : std::optional(traits->type);
}

std::string_view GgmlTypeName(GgmlType type) { return TraitsOf(type).name; }
uint64_t GgmlBlockValues(GgmlType type) { return TraitsOf(type).block_values; }
uint64_t GgmlBlockBytes(GgmlType type) { return TraitsOf(type).block_bytes; }

bool IsLoadable(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
    case GgmlType::kF16:
    case GgmlType::kBF16:
    case GgmlType::kQ8_0:
    case GgmlType::kQ4_0:
    case GgmlType::kQ4_1:
    case GgmlType::kQ5_0:
    case GgmlType::kQ5_1:
    case GgmlType::kQ4_K:
    case GgmlType::kQ5_K:
    case GgmlType::kQ6_K:
      return true;
    default:
      return false;
  }
}

std::optional<GgufValueType> GgufValueTypeFromNumber(uint32_t number) {
  if (number >= std::size(kValueTypes)) return std::nullopt;
  return static_cast<GgufValueType>(number);
}

std::string_view GgufValueTypeName(GgufValueType type) { return TraitsOf(type).name; }
size_t GgufScalarBytes(GgufValueType type) { return TraitsOf(type).bytes; }
bool IsInteger(GgufValueType type) { return TraitsOf(type).integer; }

}  // namespace baton
