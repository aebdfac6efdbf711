// Parses untrusted JSON within limits: a line of a file, or a whole document such as an HTTP body.
//
// Every error is InvalidArgument. That of a line begins with its place:
// `line 3, column 17: "max_tokens" must be a whole number`. A column counts characters from 1 on.
// That of a document has only the message, unless the document is not valid JSON. The fault of a
// value also carries the value's name (ErrorParam in common/error_details.h).
//
// Invalid UTF-8 is not valid JSON. Of equal keys, the last one counts.
//
// Thread safety: pure functions. A JsonPlace refers to its parent and to the text; both must
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

// In place of a line's number: the text is a document.
inline constexpr int64_t kNotALine = 0;

// Parses the text. `line`: the line's number, or kNotALine.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, int64_t line,
                                         const JsonLimits& limits);

// Parses the text without limits on its content, but leaves out values inside more than `depth`
// arrays and objects.
absl::StatusOr<nlohmann::json> ParseJsonOutline(std::string_view text, int64_t line, int depth);

// Place of a value in valid JSON: its name in messages and its position.
class JsonPlace {
 public:
  // Place of the outermost value.
  JsonPlace(std::string_view text, int64_t line);

  JsonPlace Member(std::string_view key) const;
  JsonPlace Element(size_t index) const;

  // Returns a name such as "messages[0].content"; empty for the outermost value.
  std::string Name() const;
  // Returns the same for every index: "messages[].content".
  std::string NameWithoutIndexes() const;

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
  std::string NameOf(bool with_indexes) const;
  absl::Status FaultAt(size_t offset, std::string_view message) const;
  Found Find() const;

  std::string_view text_;
  int64_t line_ = 0;
  const JsonPlace* parent_ = nullptr;  // null for the outermost value
  std::string_view key_;               // of a member
  size_t index_ = 0;                   // of an element
  bool is_member_ = false;
};

// Returns the member, or a null pointer if it is absent or null.
const nlohmann::json* FindField(const nlohmann::json& object, const std::string& name);

}  // namespace baton
