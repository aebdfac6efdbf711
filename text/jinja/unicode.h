// UTF-8 and the parts of Python's str that chat templates lean on: code points, white space, case.
//
// All REQUIRE valid UTF-8; the template engine checks each string on entry.
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace baton {

// The code point that starts at `offset`, and its length in bytes.
struct CodePoint {
  uint32_t value = 0;
  size_t bytes = 1;
};
CodePoint DecodeUtf8(std::string_view text, size_t offset);

// Appends one code point; false for a surrogate or a value past U+10FFFF.
bool AppendUtf8(uint32_t code_point, std::string* out);

// Byte offset of the code point that ends at `end`. REQUIRES: end > 0.
size_t PreviousCodePoint(std::string_view text, size_t end);

size_t CountCodePoints(std::string_view text);

// Byte offset of code point `index`; the size when there are no more than `index`.
size_t CodePointOffset(std::string_view text, size_t index);

// As Python's str.isspace of one character.
bool IsUnicodeSpace(uint32_t code_point);

// Byte offset past the white space that starts at `offset`.
size_t SkipUnicodeSpace(std::string_view text, size_t offset);

// Byte length of `text` without its trailing white space.
size_t LengthWithoutTrailingSpace(std::string_view text);

bool IsAscii(std::string_view text);

}  // namespace baton
