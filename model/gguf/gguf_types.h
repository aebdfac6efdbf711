// Type numbers of GGUF: tensor data (ggml types) and metadata values.
//
// Source: the GGUF specification of the ggml project (docs/gguf.md) and ggml's type table. Every
// known tensor type has a name and a size, so that any file can be inspected and errors can name
// its types. IsLoadable returns true for the types that Baton can compute with.
//
// Thread safety: pure functions and plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace baton {

// Encoding of a tensor's elements. Values are the file's numbers. Gaps are types that ggml removed.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
};

// Returns the type for a number in a file; nullopt: unknown.
std::optional<GgmlType> GgmlTypeFromNumber(uint32_t number);
std::string_view GgmlTypeName(GgmlType type);  // as ggml writes it: "Q4_1"
// A block is GgmlBlockValues values in GgmlBlockBytes bytes. A row is a whole number of blocks.
uint64_t GgmlBlockValues(GgmlType type);
uint64_t GgmlBlockBytes(GgmlType type);
// Returns true if Baton can dequantise the type and compute with it: kLoadableTypes.
bool IsLoadable(GgmlType type);
inline constexpr std::string_view kLoadableTypes =
    "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K";

// The type of a metadata value. Values are the file's numbers.
enum class GgufValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

std::optional<GgufValueType> GgufValueTypeFromNumber(uint32_t number);
std::string_view GgufValueTypeName(GgufValueType type);  // "uint32", "string", …
// Bytes of a scalar. 0 for strings and arrays: the file contains their size.
size_t GgufScalarBytes(GgufValueType type);
bool IsInteger(GgufValueType type);

}  // namespace baton
