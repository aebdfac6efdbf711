// Lexer: splits a template into tokens.
//
// It follows jinja2 with trim_blocks and lstrip_blocks on, as Hugging Face does for chat templates:
//   - The newline after a block or comment is removed.
//   - White space before a block or comment is removed if the block or comment starts its line.
//   - `-` strips all white space on its side; `+` keeps all of it.
// The lexer applies these rules completely: kText tokens contain exactly the printed text. Source:
// the jinja2 documentation, "Whitespace Control", and comparisons with jinja2's output.
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
    kEnd  // end of the template; always the last token
  };

  Kind kind = Kind::kEnd;
  int line = 1;  // line where the token starts; the first line is 1
  std::string text;
  int64_t int_value = 0;
  double float_value = 0;

  bool IsOperator(std::string_view op) const { return kind == Kind::kOperator && text == op; }
  bool IsName(std::string_view name) const { return kind == Kind::kName && text == name; }
};

// REQUIRES: `source` is valid UTF-8. Errors are InvalidArgument and start with "line N: ".
absl::StatusOr<std::vector<JinjaToken>> LexJinja(std::string_view source);

}  // namespace baton
