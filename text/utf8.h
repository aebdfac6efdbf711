// UTF-8 decoding of arbitrary bytes: finds valid characters and replaces invalid bytes.
//
// "Valid" follows the Unicode Standard's table 3-7: no overlong forms, no surrogates, nothing above
// U+10FFFF. Invalid bytes are divided into maximal subparts (the Standard, 3.9, "U+FFFD
// substitution of maximal subparts"), as Python's bytes.decode("utf-8", errors="replace") does.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton {

enum class Utf8Kind {
  kCharacter,   // one whole character
  kInvalid,     // a maximal subpart that no further byte can complete
  kIncomplete,  // the text ends inside a sequence that more bytes can complete
};

struct Utf8Step {
  Utf8Kind kind;
  size_t length;  // bytes, 1 to 4
};

// Classifies the start of `text`. REQUIRES: text is not empty.
Utf8Step NextUtf8(std::string_view text);

// Returns the length in bytes of the longest prefix that is whole, valid characters.
size_t ValidUtf8Prefix(std::string_view text);

// Returns `text` with each invalid maximal subpart replaced by U+FFFD. The result is valid UTF-8.
std::string ReplaceInvalidUtf8(std::string_view text);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace baton
