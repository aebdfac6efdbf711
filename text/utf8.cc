#include "text/utf8.h"

#include <cstdint>
#include <cstring>

namespace baton {
namespace {

constexpr bool IsContinuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

// Properties of a lead byte: the character's length and the allowed range of its second byte. The
// range excludes overlong forms, surrogates and values above U+10FFFF. Length 0: not a lead byte.
struct Lead {
  uint8_t length;
  uint8_t second_min;
  uint8_t second_max;
};

constexpr Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// Counts the ASCII bytes at the start of `text`, eight at a time.
size_t AsciiPrefix(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  while (i < text.size() && static_cast<uint8_t>(text[i]) < 0x80) ++i;
  return i;
}

}  // namespace

Utf8Step NextUtf8(std::string_view text) {
  const Lead lead = LeadOf(static_cast<uint8_t>(text[0]));
  if (lead.length == 0) return {Utf8Kind::kInvalid, 1};
  if (lead.length == 1) return {Utf8Kind::kCharacter, 1};
  if (text.size() == 1) return {Utf8Kind::kIncomplete, 1};
  const auto second = static_cast<uint8_t>(text[1]);
  if (second < lead.second_min || second > lead.second_max) return {Utf8Kind::kInvalid, 1};
  for (size_t i = 2; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8Kind::kIncomplete, i};
    if (!IsContinuation(static_cast<uint8_t>(text[i]))) return {Utf8Kind::kInvalid, i};
  }
  return {Utf8Kind::kCharacter, lead.length};
}

size_t ValidUtf8Prefix(std::string_view text) {
  size_t valid = 0;
  while (valid < text.size()) {
    valid += AsciiPrefix(text.substr(valid));
    if (valid == text.size()) break;
    const Utf8Step step = NextUtf8(text.substr(valid));
    if (step.kind != Utf8Kind::kCharacter) break;
    valid += step.length;
  }
  return valid;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) break;
    out.append(kReplacementCharacter);
    text.remove_prefix(NextUtf8(text).length);
  }
  return out;
}

}  // namespace baton
