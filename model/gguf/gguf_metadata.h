// The key-value metadata of a GGUF file, with typed access.
//
// Values are views of the file's bytes, which must outlive this object: a vocabulary of a million
// strings costs nothing until it is asked for. Getters never convert between kinds silently:
// integers of any width are accepted where the value fits, everything else must have the type that
// was asked for. Errors name the key, what was expected and what the file has; NotFound means that
// the key is absent, InvalidArgument that it has the wrong type or does not fit.
//
// Thread safety: read from any thread once filled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/gguf/gguf_types.h"

namespace baton {

struct GgufValue {
  GgufValueType type = GgufValueType::kUint8;
  GgufValueType element_type = GgufValueType::kUint8;  // of an array
  uint64_t count = 1;                                  // elements of an array
  // Little-endian and unaligned. A scalar's bytes; a string's characters; an array's elements,
  // where a string element is its length as uint64 and its characters.
  std::span<const std::byte> bytes;
};

class GgufMetadata {
 public:
  // False when the key is there already. `value` must be well-formed: every length inside its
  // bytes, bools 0 or 1, no nested array.
  bool Add(std::string_view key, GgufValue value);

  bool HasKey(std::string_view key) const { return index_.contains(key); }
  const GgufValue* Find(std::string_view key) const;                // null when absent
  std::span<const std::string_view> keys() const { return keys_; }  // in the file's order

  absl::StatusOr<std::string_view> GetString(std::string_view key) const;
  absl::StatusOr<uint32_t> GetU32(std::string_view key) const;
  absl::StatusOr<int64_t> GetI64(std::string_view key) const;
  absl::StatusOr<float> GetF32(std::string_view key) const;
  absl::StatusOr<bool> GetBool(std::string_view key) const;
  // The strings are views; the vector holds at most twice the bytes that the file spends on them.
  absl::StatusOr<std::vector<std::string_view>> GetStringArray(std::string_view key) const;
  absl::StatusOr<std::vector<int32_t>> GetI32Array(std::string_view key) const;
  absl::StatusOr<std::vector<float>> GetF32Array(std::string_view key) const;
  absl::StatusOr<std::vector<bool>> GetBoolArray(std::string_view key) const;

  // The same for optional keys: the default where the key is absent, an error on a wrong type.
  absl::StatusOr<std::string_view> GetStringOr(std::string_view key, std::string_view absent) const;
  absl::StatusOr<uint32_t> GetU32Or(std::string_view key, uint32_t absent) const;
  absl::StatusOr<int64_t> GetI64Or(std::string_view key, int64_t absent) const;
  absl::StatusOr<float> GetF32Or(std::string_view key, float absent) const;
  absl::StatusOr<bool> GetBoolOr(std::string_view key, bool absent) const;

  // For people: "uint32", "array of 49152 string".
  static std::string DescribeType(const GgufValue& value);
  // For people: numbers in full, strings quoted and escaped, arrays as "[first, …]"; about
  // `max_characters` long at most.
  static std::string FormatValue(const GgufValue& value, size_t max_characters = 120);

 private:
  absl::StatusOr<const GgufValue*> Get(std::string_view key, GgufValueType type) const;
  absl::StatusOr<const GgufValue*> GetArray(std::string_view key, GgufValueType element) const;

  std::vector<std::string_view> keys_;
  absl::flat_hash_map<std::string_view, GgufValue> index_;
};

// A name from a file as an error message shows it: escaped, at most 64 characters and "…".
std::string PrintableName(std::string_view name);

}  // namespace baton
