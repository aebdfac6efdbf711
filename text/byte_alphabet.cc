#include "text/byte_alphabet.h"

#include <array>

#include "text/utf8.h"

namespace baton {
namespace {

constexpr int kCodePoints = 256 + 68;

constexpr bool StandsForItself(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

struct Alphabet {
  std::array<uint16_t, 256> code_point{};      // of a byte
  std::array<int16_t, kCodePoints> byte_of{};  // of a code point; -1: none
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.byte_of.fill(-1);
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const int code_point = StandsForItself(byte) ? byte : next++;
    alphabet.code_point[byte] = static_cast<uint16_t>(code_point);
    alphabet.byte_of[code_point] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::string ByteToAlphabet(uint8_t byte) {
  const uint16_t code_point = kAlphabet.code_point[byte];
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xC0 | (code_point >> 6)),
          static_cast<char>(0x80 | (code_point & 0x3F))};
}

std::optional<std::string> BytesFromAlphabet(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    const Utf8Step step = NextUtf8(text);
    if (step.kind != Utf8Kind::kCharacter || step.length > 2) return std::nullopt;
    const int code_point = step.length == 1 ? text[0] : ((text[0] & 0x1F) << 6) | (text[1] & 0x3F);
    if (code_point >= kCodePoints || kAlphabet.byte_of[code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte_of[code_point]));
    text.remove_prefix(step.length);
  }
  return bytes;
}

}  // namespace baton
