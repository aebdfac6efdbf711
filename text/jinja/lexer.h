// Splits a template into tokens, by jinja2's rules with trim_blocks and lstrip_blocks on, as
// Hugging Face renders chat templates: the newline after a block or comment goes, and so does the
// white space before one that starts its line; `-` strips everything, `+` keeps it.
//
// White space control is finished here: kText tokens hold what will be printed. Source of the
// rules: the jinja2 documentation, "Whitespace Control", and checks against its output.
// Thread safety: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

struct JinjaToken {
  enum class Kind {
    kText,
    kPrintBegin,  // {{
    kPrintEnd,    // }}
    kBlockBegin,  // {%
    kBlockEnd,    // %}
    kName,
    kString,  // text: the string without quotes, escapes resolved
    kInt,
    kFloat,
    kOperator,
    kEnd  // of the template; always the last token
  };

  Kind kind = Kind::kEnd;
  int line = 1;  // from 1, where the token starts
  std::string text;
  int64_t int_value = 0;
  double float_value = 0;

  bool IsOperator(std::string_view op) const { return kind == Kind::kOperator && text == op; }
  bool IsName(std::string_view name) const { return kind == Kind::kName && text == name; }
};

// `source` REQUIRES valid UTF-8. Errors are InvalidArgument and start with "line N: ".
absl::StatusOr<std::vector<JinjaToken>> LexJinja(std::string_view source);

}  // namespace baton
