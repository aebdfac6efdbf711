// Typed access to the key-value metadata of a GGUF file.
//
// Values are views of the file's bytes, which must outlive this object. So a vocabulary of a
// million strings costs nothing before it is read. Getters accept an integer of any width if the
// value fits, and otherwise require the exact type. Errors name the key, the expected type and the
// type in the file. NotFound: the key is absent. InvalidArgument: wrong type, or the value does not
// fit.
//
// Thread safety: safe to read from any thread once filled.
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
  // Little-endian and unaligned: a scalar's bytes, a string's characters, or an array's elements. A
  // string element is its length as uint64, then its characters.
  std::span<const std::byte> bytes;
};

class GgufMetadata {
 public:
  // Returns false if the key exists already. REQUIRES: `value` is well-formed: every length lies
  // inside its bytes, bools are 0 or 1, no array is nested.
  bool Add(std::string_view key, GgufValue value);

  bool HasKey(std::string_view key) const { return index_.contains(key); }
  const GgufValue* Find(std::string_view key) const;                // null if absent
  std::span<const std::string_view> keys() const { return keys_; }  // in the file's order

  absl::StatusOr<std::string_view> GetString(std::string_view key) const;
  absl::StatusOr<uint32_t> GetU32(std::string_view key) const;
  absl::StatusOr<int64_t> GetI64(std::string_view key) const;
  absl::StatusOr<float> GetF32(std::string_view key) const;
  absl::StatusOr<bool> GetBool(std::string_view key) const;
  // The strings are views. The vector takes at most twice the bytes of the strings in the file.
  absl::StatusOr<std::vector<std::string_view>> GetStringArray(std::string_view key) const;
  absl::StatusOr<std::vector<int32_t>> GetI32Array(std::string_view key) const;
  absl::StatusOr<std::vector<float>> GetF32Array(std::string_view key) const;
  absl::StatusOr<std::vector<bool>> GetBoolArray(std::string_view key) const;

  // Getters for optional keys. They return `absent` if the key is absent, and an error for a wrong
  // type.
  absl::StatusOr<std::string_view> GetStringOr(std::string_view key, std::string_view absent) const;
  absl::StatusOr<uint32_t> GetU32Or(std::string_view key, uint32_t absent) const;
  absl::StatusOr<int64_t> GetI64Or(std::string_view key, int64_t absent) const;
  absl::StatusOr<float> GetF32Or(std::string_view key, float absent) const;
  absl::StatusOr<bool> GetBoolOr(std::string_view key, bool absent) const;

  // For people: "uint32", "array of 49152 string".
  static std::string DescribeType(const GgufValue& value);
  // For people: full numbers, quoted and escaped strings, arrays as "[first, …]". The result has
  // about `max_characters` characters at most.
  static std::string FormatValue(const GgufValue& value, size_t max_characters = 120);

 private:
  absl::StatusOr<const GgufValue*> Get(std::string_view key, GgufValueType type) const;
  absl::StatusOr<const GgufValue*> GetArray(std::string_view key, GgufValueType element) const;

  std::vector<std::string_view> keys_;
  absl::flat_hash_map<std::string_view, GgufValue> index_;
};

// Returns a name from a file for an error message: escaped, at most 64 characters, then "…".
std::string PrintableName(std::string_view name);

}  // namespace baton
