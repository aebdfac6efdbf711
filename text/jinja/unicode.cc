#include "text/jinja/unicode.h"

#include <algorithm>

namespace baton {
namespace {

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

CodePoint DecodeUtf8(std::string_view text, size_t offset) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[offset + k]); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3Fu), 2};
  if (lead < 0xF0) {
    return {(lead & 0x0F) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu), 3};
  }
  return {
      (lead & 0x07) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu),
      4};
}

bool AppendUtf8(uint32_t code_point, std::string* out) {
  const auto put = [&](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point <= 0xDFFF)) return false;
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
  return true;
}

size_t PreviousCodePoint(std::string_view text, size_t end) {
  size_t start = end - 1;
  while (start > 0 && IsContinuation(text[start])) --start;
  return start;
}

size_t CountCodePoints(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return !IsContinuation(byte); }));
}

size_t CodePointOffset(std::string_view text, size_t index) {
  size_t offset = 0;
  while (index > 0 && offset < text.size()) {
    offset += DecodeUtf8(text, offset).bytes;
    --index;
  }
  return offset;
}

bool IsUnicodeSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

size_t SkipUnicodeSpace(std::string_view text, size_t offset) {
  while (offset < text.size()) {
    const CodePoint point = DecodeUtf8(text, offset);
    if (!IsUnicodeSpace(point.value)) break;
    offset += point.bytes;
  }
  return offset;
}

size_t LengthWithoutTrailingSpace(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t start = PreviousCodePoint(text, end);
    if (!IsUnicodeSpace(DecodeUtf8(text, start).value)) break;
    end = start;
  }
  return end;
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char byte) { return static_cast<unsigned char>(byte) < 0x80; });
}

}  // namespace baton
