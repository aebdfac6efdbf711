// Converts values to text: Python's str() and repr(), and JSON as Hugging Face's tojson writes it.
//
// Trust: str() of a string keeps the trust of each byte. In a printed list or in JSON, one
// untrusted piece makes the whole result untrusted.
// Thread safety: pure; the meter belongs to the render.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "text/jinja/string.h"
#include "text/jinja/value.h"

namespace baton {

// Returns str(value). Refuses values that Python prints as an address or a name (functions,
// generators). Refuses non-ASCII characters inside a list, because their escapes depend on Python's
// Unicode tables.
absl::StatusOr<JinjaString> JinjaToString(const JinjaValue& value, JinjaMeter& meter);

struct JinjaJsonOptions {
  int indent = -1;  // spaces per level; -1: everything on one line
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<JinjaString> item_separator;  // nullopt: the default of json.dumps
  JinjaString key_separator{": ", true};
};
inline constexpr int kMaxJinjaJsonIndent = 64;

// Returns json.dumps(value). Does not escape <, >, & and ': Hugging Face replaces jinja2's filter.
absl::StatusOr<JinjaString> JinjaToJson(const JinjaValue& value, const JinjaJsonOptions& options,
                                        JinjaMeter& meter);

// Returns repr() of a float: the shortest decimal number that parses to the same value.
std::string JinjaFloatText(double value);

}  // namespace baton
