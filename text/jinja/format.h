// Values as text: Python's str() and repr(), and JSON as Hugging Face's tojson writes it.
//
// Origin: a string printed as itself keeps its runs. Written inside a list, or as JSON, one
// untrusted piece makes the whole result untrusted.
// Thread safety: pure; the meter belongs to the render.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "text/jinja/string.h"
#include "text/jinja/value.h"

namespace baton {

// str(value). Refuses what Python prints as an address or a name (functions, generators), and
// characters past ASCII inside a list, whose escapes depend on Python's Unicode tables.
absl::StatusOr<JinjaString> JinjaToString(const JinjaValue& value, JinjaMeter& meter);

struct JinjaJsonOptions {
  int indent = -1;  // spaces per level; -1: all on one line
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<JinjaString> item_separator;  // nullopt: as json.dumps chooses
  JinjaString key_separator{": ", true};
};
inline constexpr int kMaxJinjaJsonIndent = 64;

// json.dumps(value). Does not escape <, >, & and ' (Hugging Face replaces jinja2's own filter).
absl::StatusOr<JinjaString> JinjaToJson(const JinjaValue& value, const JinjaJsonOptions& options,
                                        JinjaMeter& meter);

// repr() of a float: the shortest digits that read back.
std::string JinjaFloatText(double value);

}  // namespace baton
