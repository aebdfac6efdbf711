#include "model/gguf/gguf_metadata.h"

#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

template <typename T>
T Load(std::span<const std::byte> bytes, uint64_t index = 0) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

std::string_view Characters(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// An integer of any width that GGUF has.
struct WideInteger {
  bool negative = false;
  uint64_t bits = 0;  // two's complement if negative
};

WideInteger Signed(int64_t value) { return {value < 0, static_cast<uint64_t>(value)}; }

WideInteger LoadInteger(GgufValueType type, std::span<const std::byte> bytes, uint64_t index) {
  switch (type) {
    case GgufValueType::kUint8:
      return {false, Load<uint8_t>(bytes, index)};
    case GgufValueType::kUint16:
      return {false, Load<uint16_t>(bytes, index)};
    case GgufValueType::kUint32:
      return {false, Load<uint32_t>(bytes, index)};
    case GgufValueType::kUint64:
      return {false, Load<uint64_t>(bytes, index)};
    case GgufValueType::kInt8:
      return Signed(Load<int8_t>(bytes, index));
    case GgufValueType::kInt16:
      return Signed(Load<int16_t>(bytes, index));
    case GgufValueType::kInt32:
      return Signed(Load<int32_t>(bytes, index));
    default:
      return Signed(Load<int64_t>(bytes, index));
  }
}

std::string ToString(WideInteger value) {
  return value.negative ? StrCat(static_cast<int64_t>(value.bits)) : StrCat(value.bits);
}

template <typename T>
absl::StatusOr<T> Narrow(std::string_view key, WideInteger value) {
  constexpr auto kMin = std::numeric_limits<T>::min();
  constexpr auto kMax = std::numeric_limits<T>::max();
  const bool fits = value.negative ? static_cast<int64_t>(value.bits) >= static_cast<int64_t>(kMin)
                                   : value.bits <= static_cast<uint64_t>(kMax);
  if (fits) return static_cast<T>(value.bits);
  return absl::InvalidArgumentError(StrCat("gguf: key '", PrintableName(key), "' is ",
                                           ToString(value), ", outside ", kMin, "…", kMax));
}

absl::Status WrongType(std::string_view key, std::string_view expected, const GgufValue& value) {
  return absl::InvalidArgumentError(StrCat("gguf: key '", PrintableName(key), "' must be ",
                                           expected, " but is ",
                                           GgufMetadata::DescribeType(value)));
}

absl::Status Absent(std::string_view key) {
  return absl::NotFoundError(StrCat("gguf: key '", PrintableName(key), "' is absent"));
}

template <typename T>
absl::StatusOr<T> GetInteger(const GgufMetadata& metadata, std::string_view key) {
  const GgufValue* value = metadata.Find(key);
  if (value == nullptr) return Absent(key);
  if (!IsInteger(value->type)) return WrongType(key, "an integer", *value);
  return Narrow<T>(key, LoadInteger(value->type, value->bytes, 0));
}

// Iterates over the strings of a well-formed array.
class StringCursor {
 public:
  explicit StringCursor(std::span<const std::byte> bytes) : rest_(bytes) {}
  std::string_view Next() {
    const auto length = Load<uint64_t>(rest_);
    const std::string_view text = Characters(rest_.subspan(sizeof(uint64_t), length));
    rest_ = rest_.subspan(sizeof(uint64_t) + length);
    return text;
  }

 private:
  std::span<const std::byte> rest_;
};

std::string Quote(std::string_view text, size_t max_characters) {
  const std::string shown(text.substr(0, max_characters));
  return StrCat("'", absl::Utf8SafeCEscape(shown), shown.size() < text.size() ? "…'" : "'");
}

std::string FormatScalar(GgufValueType type, std::span<const std::byte> bytes, uint64_t index) {
  switch (type) {
    case GgufValueType::kFloat32:
      return absl::StrFormat("%.9g", Load<float>(bytes, index));
    case GgufValueType::kFloat64:
      return absl::StrFormat("%.17g", Load<double>(bytes, index));
    case GgufValueType::kBool:
      return Load<uint8_t>(bytes, index) != 0 ? "true" : "false";
    default:
      return ToString(LoadInteger(type, bytes, index));
  }
}

std::string FormatArray(const GgufValue& value, size_t max_characters) {
  std::string result = "[";
  StringCursor strings(value.bytes);
  for (uint64_t i = 0; i < value.count; ++i) {
    if (result.size() >= max_characters) {
      absl::StrAppend(&result, ", …");
      break;
    }
    absl::StrAppend(&result, i == 0 ? "" : ", ",
                    value.element_type == GgufValueType::kString
                        ? Quote(strings.Next(), max_characters)
                        : FormatScalar(value.element_type, value.bytes, i));
  }
  return result + "]";
}

template <typename T>
absl::StatusOr<T> DefaultIfAbsent(absl::StatusOr<T> value, T absent) {
  if (absl::IsNotFound(value.status())) return absent;
  return value;
}

}  // namespace

std::string PrintableName(std::string_view name) {
  constexpr size_t kShown = 64;
  return StrCat(absl::CHexEscape(std::string(name.substr(0, kShown))),
                name.size() > kShown ? "…" : "");
}

bool GgufMetadata::Add(std::string_view key, GgufValue value) {
  if (!index_.emplace(key, value).second) return false;
  keys_.push_back(key);
  return true;
}

const GgufValue* GgufMetadata::Find(std::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &found->second;
}

absl::StatusOr<const GgufValue*> GgufMetadata::Get(std::string_view key, GgufValueType type) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Absent(key);
  if (value->type != type) return WrongType(key, GgufValueTypeName(type), *value);
  return value;
}

absl::StatusOr<const GgufValue*> GgufMetadata::GetArray(std::string_view key,
                                                        GgufValueType element) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Absent(key);
  if (value->type != GgufValueType::kArray || value->element_type != element) {
    return WrongType(key, StrCat("an array of ", GgufValueTypeName(element)), *value);
  }
  return value;
}

absl::StatusOr<std::string_view> GgufMetadata::GetString(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Get(key, GgufValueType::kString));
  return Characters(value->bytes);
}

absl::StatusOr<uint32_t> GgufMetadata::GetU32(std::string_view key) const {
  return GetInteger<uint32_t>(*this, key);
}

absl::StatusOr<int64_t> GgufMetadata::GetI64(std::string_view key) const {
  return GetInteger<int64_t>(*this, key);
}

absl::StatusOr<float> GgufMetadata::GetF32(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Get(key, GgufValueType::kFloat32));
  return Load<float>(value->bytes);
}

absl::StatusOr<bool> GgufMetadata::GetBool(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Get(key, GgufValueType::kBool));
  return Load<uint8_t>(value->bytes) != 0;
}

absl::StatusOr<std::vector<std::string_view>> GgufMetadata::GetStringArray(
    std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, GetArray(key, GgufValueType::kString));
  std::vector<std::string_view> result;
  result.reserve(value->count);
  StringCursor strings(value->bytes);
  for (uint64_t i = 0; i < value->count; ++i) result.push_back(strings.Next());
  return result;
}

absl::StatusOr<std::vector<int32_t>> GgufMetadata::GetI32Array(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Absent(key);
  if (value->type != GgufValueType::kArray || !IsInteger(value->element_type)) {
    return WrongType(key, "an array of integers", *value);
  }
  std::vector<int32_t> result(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    ASSIGN_OR_RETURN(result[i],
                     Narrow<int32_t>(key, LoadInteger(value->element_type, value->bytes, i)));
  }
  return result;
}

absl::StatusOr<std::vector<float>> GgufMetadata::GetF32Array(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, GetArray(key, GgufValueType::kFloat32));
  std::vector<float> result(value->count);
  if (!result.empty()) std::memcpy(result.data(), value->bytes.data(), value->bytes.size());
  return result;
}

absl::StatusOr<std::vector<bool>> GgufMetadata::GetBoolArray(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, GetArray(key, GgufValueType::kBool));
  std::vector<bool> result(value->count);
  for (uint64_t i = 0; i < value->count; ++i) result[i] = Load<uint8_t>(value->bytes, i) != 0;
  return result;
}

absl::StatusOr<std::string_view> GgufMetadata::GetStringOr(std::string_view key,
                                                           std::string_view absent) const {
  return DefaultIfAbsent(GetString(key), absent);
}
absl::StatusOr<uint32_t> GgufMetadata::GetU32Or(std::string_view key, uint32_t absent) const {
  return DefaultIfAbsent(GetU32(key), absent);
}
absl::StatusOr<int64_t> GgufMetadata::GetI64Or(std::string_view key, int64_t absent) const {
  return DefaultIfAbsent(GetI64(key), absent);
}
absl::StatusOr<float> GgufMetadata::GetF32Or(std::string_view key, float absent) const {
  return DefaultIfAbsent(GetF32(key), absent);
}
absl::StatusOr<bool> GgufMetadata::GetBoolOr(std::string_view key, bool absent) const {
  return DefaultIfAbsent(GetBool(key), absent);
}

std::string GgufMetadata::DescribeType(const GgufValue& value) {
  if (value.type != GgufValueType::kArray) return std::string(GgufValueTypeName(value.type));
  return StrCat("array of ", value.count, " ", GgufValueTypeName(value.element_type));
}

std::string GgufMetadata::FormatValue(const GgufValue& value, size_t max_characters) {
  switch (value.type) {
    case GgufValueType::kString:
      return Quote(Characters(value.bytes), max_characters);
    case GgufValueType::kArray:
      return FormatArray(value, max_characters);
    default:
      return FormatScalar(value.type, value.bytes, 0);
  }
}

}  // namespace baton
