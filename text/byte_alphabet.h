// The byte-level alphabet of GPT-2: every byte is written as one printable character, so that a
// vocabulary of byte strings can be kept as text ("Ġthe" is " the").
//
// Bytes 33–126, 161–172 and 174–255 stand for the code point of the same number; the other 68, in
// ascending order, for U+0100, U+0101, …
// Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), and its
// code.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace baton {

// The character that stands for `byte`, in UTF-8.
std::string ByteToAlphabet(uint8_t byte);

// The bytes that `text` stands for, or nothing when a character of it is outside the alphabet.
std::optional<std::string> BytesFromAlphabet(std::string_view text);

}  // namespace baton
