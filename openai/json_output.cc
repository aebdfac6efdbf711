#include "openai/json_output.h"

#include <charconv>
#include <cmath>
#include <cstddef>

#include "text/utf8.h"

namespace baton {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

// Returns true for a byte that stands for itself in a JSON string, if the text is UTF-8.
bool IsPlain(char c) { return static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\'; }

void AppendEscape(char c, std::string& out) {
  out += '\\';
  switch (c) {
    case '\n':
      out += 'n';
      return;
    case '\r':
      out += 'r';
      return;
    case '\t':
      out += 't';
      return;
    case '"':
    case '\\':
      out += c;
      return;
    default:
      out += "u00";
      out += kHexDigits[static_cast<unsigned char>(c) >> 4];
      out += kHexDigits[static_cast<unsigned char>(c) & 15];
  }
}

void AppendValid(std::string_view text, std::string& out) {
  size_t plain = 0;  // begin of the bytes that are not written yet
  for (size_t at = 0; at < text.size(); ++at) {
    if (IsPlain(text[at])) continue;
    out += text.substr(plain, at - plain);
    AppendEscape(text[at], out);
    plain = at + 1;
  }
  out += text.substr(plain);
}

}  // namespace

JsonOutput& JsonOutput::Key(std::string_view key) {
  Comma();
  out_ += '"';
  out_ += key;
  out_ += "\":";
  return *this;
}

JsonOutput& JsonOutput::TextKey(std::string_view key) {
  Text(key);
  out_ += ':';
  return *this;
}

JsonOutput& JsonOutput::Text(std::string_view text) {
  Comma();
  out_ += '"';
  if (ValidUtf8Prefix(text) == text.size()) {
    AppendValid(text, out_);
  } else {
    AppendValid(ReplaceInvalidUtf8(text), out_);
  }
  out_ += '"';
  return *this;
}

JsonOutput& JsonOutput::Integer(int64_t value) { return Raw(std::to_string(value)); }

JsonOutput& JsonOutput::Logprob(float value) {
  if (!std::isfinite(value)) return Raw("-9999.0");
  char digits[32];
  const std::to_chars_result end = std::to_chars(digits, digits + sizeof(digits), value);
  return Raw({digits, static_cast<size_t>(end.ptr - digits)});
}

JsonOutput& JsonOutput::Raw(std::string_view json) {
  Comma();
  out_ += json;
  return *this;
}

JsonOutput& JsonOutput::Open(char bracket) {
  Comma();
  out_ += bracket;
  return *this;
}

JsonOutput& JsonOutput::Close(char bracket) {
  out_ += bracket;
  return *this;
}

// A string ends with a quote, so these bytes are never inside one.
void JsonOutput::Comma() {
  if (out_.empty()) return;
  const char last = out_.back();
  if (last != '{' && last != '[' && last != ':' && last != ',') out_ += ',';
}

}  // namespace baton
