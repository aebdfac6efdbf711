// UTF-8 functions for chat templates: code points and white space, as Python's str defines them.
//
// All functions REQUIRE valid UTF-8. The template engine checks each string on entry.
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace baton {

// A code point and its length in bytes.
struct CodePoint {
  uint32_t value = 0;
  size_t bytes = 1;
};
CodePoint DecodeUtf8(std::string_view text, size_t offset);

// Appends one code point. Returns false for a surrogate or a value above U+10FFFF.
bool AppendUtf8(uint32_t code_point, std::string* out);

// Returns the byte offset of the code point that ends at `end`. REQUIRES: end > 0.
size_t PreviousCodePoint(std::string_view text, size_t end);

size_t CountCodePoints(std::string_view text);

// Returns the byte offset of code point number `index`; text.size() if there are not so many.
size_t CodePointOffset(std::string_view text, size_t index);

// Same as Python's str.isspace for one character.
bool IsUnicodeSpace(uint32_t code_point);

// Returns the byte offset behind the white space that starts at `offset`.
size_t SkipUnicodeSpace(std::string_view text, size_t offset);

// Returns the length in bytes of `text` without its trailing white space.
size_t LengthWithoutTrailingSpace(std::string_view text);

bool IsAscii(std::string_view text);

}  // namespace baton
