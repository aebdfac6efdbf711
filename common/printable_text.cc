#include "common/printable_text.h"

#include <cstdint>

namespace baton {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: the text does not begin with valid UTF-8
};

Character First(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  uint32_t code = lead & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kLeast[bytes] || code > 0x10ffff || surrogate) return {};
  return {code, bytes};
}

bool IsControl(uint32_t code) {
  const bool separator = code == 0x2028 || code == 0x2029;
  const bool mark = code == 0x061c || code == 0x200e || code == 0x200f;
  const bool embedding = (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || separator || mark || embedding;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string Printable(std::string_view text, size_t most_bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  const bool cut = text.size() > most_bytes;
  text = text.substr(0, most_bytes);
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character character = First(text);
    const bool shown = character.bytes > 0 && !IsControl(character.code);
    const size_t bytes = character.bytes > 0 ? character.bytes : 1;
    for (size_t i = 0; i < bytes; ++i) {
      const auto byte = static_cast<uint8_t>(text[i]);
      if (shown) {
        out += text[i];
      } else {
        out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
      }
    }
    text.remove_prefix(bytes);
  }
  if (cut) out += "…";
  return out;
}

bool SameButForNumbers(std::string_view a, std::string_view b) {
  while (true) {
    while (!a.empty() && IsDigit(a.front())) a.remove_prefix(1);
    while (!b.empty() && IsDigit(b.front())) b.remove_prefix(1);
    if (a.empty() || b.empty()) return a.empty() && b.empty();
    if (a.front() != b.front()) return false;
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
}

}  // namespace baton
