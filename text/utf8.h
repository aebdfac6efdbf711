// UTF-8 as the tokenizer needs it: where the valid characters of any byte string are, and how
// damaged ones read.
//
// "Valid" is the Unicode Standard's table 3-7 (no overlong forms, no surrogates, nothing above
// U+10FFFF). Damage is cut into maximal subparts (the Standard, 3.9, "U+FFFD substitution of
// maximal subparts"), which is what Python's bytes.decode("utf-8", errors="replace") does.
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
  kIncomplete,  // the text ends inside what may still become a character
};

struct Utf8Step {
  Utf8Kind kind;
  size_t length;  // bytes, 1 to 4
};

// What `text` begins with. REQUIRES: text is not empty.
Utf8Step NextUtf8(std::string_view text);

// Bytes at the start of `text` that are whole characters; 0 when it begins with damage.
size_t ValidUtf8Prefix(std::string_view text);

// `text` with each maximal subpart of damage replaced by U+FFFD: always valid UTF-8.
std::string ReplaceInvalidUtf8(std::string_view text);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace baton
