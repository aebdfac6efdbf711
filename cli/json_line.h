// Parses an untrusted line of JSON within limits. Every fault has its line and column.
//
// A column counts characters from 1 on. Every error is InvalidArgument and begins with the place:
// `line 3, column 17: "max_tokens" must be a whole number`.
//
// Thread safety: pure functions. A JsonPlace refers to its parent and to the line; both must
// outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton {

struct JsonLimits {
  size_t max_bytes = 0;
  int max_depth = 0;  // arrays and objects around a value; 0 for the outermost one
  // An object or array counts twice, a key once. Values beyond the limit are not stored, so a line
  // needs only a few times its length in memory.
  size_t max_values = 0;
};

// Parses the line. `number` is the line's number, for messages.
absl::StatusOr<nlohmann::json> ParseJsonLine(std::string_view line, int64_t number,
                                             const JsonLimits& limits);

// Parses the line without limits on its content, but leaves out values inside more than `depth`
// arrays and objects.
absl::StatusOr<nlohmann::json> ParseJsonOutline(std::string_view line, int64_t number, int depth);

// Returns "line 3, column 17: MESSAGE" for the byte `offset` of the line.
absl::Status JsonFault(std::string_view line, int64_t number, size_t offset,
                       std::string_view message);

// Place of a value in a line of valid JSON: its name in messages and its position.
class JsonPlace {
 public:
  // Place of the outermost value.
  JsonPlace(std::string_view line, int64_t number);

  JsonPlace Member(std::string_view key) const;
  JsonPlace Element(size_t index) const;

  // Returns a name such as "messages[0].content"; empty for the outermost value.
  std::string Name() const;

  // Returns a fault with the position of the value.
  absl::Status Fault(std::string_view message) const;
  // Returns the same with the value's name before the message: `"top_p" must be a number`.
  absl::Status FaultOf(std::string_view message) const;
  // Returns a fault with the position of the member's key, for a member that is not allowed.
  absl::Status FaultAtKey(std::string_view message) const;

 private:
  struct Found {
    size_t key = 0;  // of an element: as `value`
    size_t value = 0;
  };

  JsonPlace(const JsonPlace* parent, std::string_view key, size_t index);
  Found Find() const;

  std::string_view line_;
  int64_t number_ = 0;
  const JsonPlace* parent_ = nullptr;  // null for the outermost value
  std::string_view key_;               // of a member
  size_t index_ = 0;                   // of an element
  bool is_member_ = false;
};

// Returns the string at `place`. Any other value is a fault.
absl::StatusOr<std::string> ToText(const JsonPlace& place, const nlohmann::json& value);

// Returns the member, or a null pointer if it is absent or null.
const nlohmann::json* FindField(const nlohmann::json& object, const std::string& name);

}  // namespace baton
