// Byte-level alphabet of GPT-2. It writes every byte as one printable character, so a vocabulary of
// byte strings can be stored as text ("Ġthe" is " the").
//
// Bytes 33–126, 161–172 and 174–255 map to the code point of the same number. The other 68 bytes,
// in ascending order, map to U+0100, U+0101, …
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

// Returns the alphabet's character for `byte`, in UTF-8.
std::string ByteToAlphabet(uint8_t byte);

// Returns the bytes that `text` spells, or nullopt if one of its characters is not in the alphabet.
std::optional<std::string> BytesFromAlphabet(std::string_view text);

}  // namespace baton
