#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "common/status_macros.h"
#include "text/jinja/error.h"
#include "text/jinja/unicode.h"

namespace baton {
namespace {

// Longest operators first: the lexer takes the first that matches.
constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

// Converts all newlines to "\n" and removes the newline at the end of the file.
std::string NormalizeNewlines(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      result.push_back(source[i]);
      continue;
    }
    result.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!result.empty() && result.back() == '\n') result.pop_back();
  return result;
}

bool IsNameByte(char c) { return absl::ascii_isalnum(c) || c == '_'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeNewlines(source)) {}

  absl::StatusOr<std::vector<JinjaToken>> Run() {
    while (pos_ < source_.size()) RETURN_IF_ERROR(LexTextAndTag());
    Emit(JinjaToken::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  using Kind = JinjaToken::Kind;

  std::string_view Rest() const { return std::string_view(source_).substr(pos_); }
  bool At(std::string_view prefix) const { return Rest().substr(0, prefix.size()) == prefix; }
  void Advance(size_t bytes) {
    line_ +=
        static_cast<int>(std::count(source_.begin() + pos_, source_.begin() + pos_ + bytes, '\n'));
    pos_ += bytes;
  }
  void SkipSpace() { Advance(SkipUnicodeSpace(source_, pos_) - pos_); }
  JinjaToken& Emit(Kind kind, std::string_view text) {
    tokens_.push_back({kind, line_, std::string(text)});
    return tokens_.back();
  }
  template <typename... Pieces>
  absl::Status Error(const Pieces&... pieces) const {
    return JinjaError("line ", line_, ": ", pieces...);
  }

  // Emits the text up to `tag`, after applying the tag's sign and the white space rules.
  void EmitText(size_t tag, char sign, bool strips_line) {
    std::string_view text = std::string_view(source_).substr(pos_, tag - pos_);
    const bool line_starting = pos_ == 0 || source_[pos_ - 1] == '\n';
    if (sign == '-') {
      text = text.substr(0, LengthWithoutTrailingSpace(text));
    } else if (sign != '+' && strips_line) {
      const size_t newline = text.rfind('\n');
      const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
      if ((newline != std::string_view::npos || line_starting) &&
          SkipUnicodeSpace(text, line_start) == text.size()) {
        text = text.substr(0, line_start);
      }
    }
    if (!text.empty()) Emit(Kind::kText, text);
    Advance(tag - pos_);
  }

  // Skips white space after the closing delimiter of a block or comment. `sign` is the sign before
  // that delimiter.
  void SkipAfterBlock(char sign) {
    if (sign == '-') {
      SkipSpace();
    } else if (sign != '+' && At("\n")) {
      Advance(1);
    }
  }

  absl::Status LexTextAndTag() {
    size_t tag = source_.find('{', pos_);
    while (tag != std::string::npos &&
           (tag + 1 == source_.size() ||
            std::string_view("{%#").find(source_[tag + 1]) == std::string_view::npos)) {
      tag = source_.find('{', tag + 1);
    }
    if (tag == std::string::npos) {
      Emit(Kind::kText, Rest());
      Advance(source_.size() - pos_);
      return absl::OkStatus();
    }
    const char type = source_[tag + 1];
    char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    if (sign != '-' && sign != '+') sign = ' ';
    EmitText(tag, sign, type != '{');
    const size_t opening = sign == ' ' ? 2 : 3;
    if (type == '#') return LexComment(opening);
    if (type == '%' && AtTagNamed("raw", pos_ + opening)) return LexRaw(opening);
    Emit(type == '{' ? Kind::kPrintBegin : Kind::kBlockBegin, "");
    Advance(opening);
    return LexInside(type == '{');
  }

  absl::Status LexComment(size_t opening) {
    const size_t begin = pos_ + opening;
    const size_t end = source_.find("#}", begin);
    if (end == std::string::npos) return Error("the comment has no closing #}");
    const char sign = end > begin ? source_[end - 1] : ' ';
    Advance(end + 2 - pos_);
    SkipAfterBlock(sign);
    return absl::OkStatus();
  }

  // Returns true if `name` and then the end of the tag follow at `offset`.
  bool AtTagNamed(std::string_view name, size_t offset) const {
    offset = SkipUnicodeSpace(source_, offset);
    if (std::string_view(source_).substr(offset, name.size()) != name) return false;
    offset = SkipUnicodeSpace(source_, offset + name.size());
    const std::string_view rest = std::string_view(source_).substr(offset, 3);
    return rest.substr(0, 2) == "%}" || rest == "-%}" || (name != "raw" && rest == "+%}");
  }

  absl::Status LexRaw(size_t opening) {
    const int line = line_;
    const size_t close = source_.find("%}", pos_ + opening);
    const bool strips = source_[close - 1] == '-';
    Advance(close + 2 - pos_);
    if (strips) SkipSpace();
    size_t end = source_.find("{%", pos_);
    char sign = ' ';
    for (; end != std::string::npos; end = source_.find("{%", end + 1)) {
      sign = end + 2 < source_.size() ? source_[end + 2] : ' ';
      if (sign != '-' && sign != '+') sign = ' ';
      if (AtTagNamed("endraw", end + (sign == ' ' ? 2 : 3))) break;
    }
    if (end == std::string::npos) {
      return JinjaError("line ", line, ": the raw block has no endraw");
    }
    EmitText(end, sign, true);
    const size_t raw_close = source_.find("%}", pos_ + 2);
    const char end_sign = source_[raw_close - 1];
    Advance(raw_close + 2 - pos_);
    SkipAfterBlock(end_sign);
    return absl::OkStatus();
  }

  // Lexes the tokens between {{ and }}, or {% and %}. While a brace is open, "}}" does not close
  // the tag, so a dict may end directly before it.
  absl::Status LexInside(bool print) {
    const int line = line_;
    const std::string_view closing = print ? "}}" : "%}";
    std::string open_brackets;
    for (;;) {
      SkipSpace();
      if (pos_ == source_.size()) {
        return JinjaError("line ", line, ": the tag has no closing ", closing);
      }
      if (open_brackets.empty()) {
        const char sign = At("-") || (At("+") && !print) ? source_[pos_] : ' ';
        const size_t skip = sign == ' ' ? 0 : 1;
        if (Rest().substr(skip, 2) == closing) {
          Emit(print ? Kind::kPrintEnd : Kind::kBlockEnd, "");
          Advance(skip + 2);
          if (!print) SkipAfterBlock(sign);
          if (print && sign == '-') SkipSpace();
          return absl::OkStatus();
        }
      }
      RETURN_IF_ERROR(LexToken(&open_brackets));
    }
  }

  absl::Status LexToken(std::string* open_brackets) {
    const char c = source_[pos_];
    if (absl::ascii_isdigit(c)) return LexNumber();
    if (c == '\'' || c == '"') return LexString(c);
    if (IsNameByte(c)) {
      size_t end = pos_;
      while (end < source_.size() && IsNameByte(source_[end])) ++end;
      Emit(Kind::kName, Rest().substr(0, end - pos_));
      Advance(end - pos_);
      return absl::OkStatus();
    }
    for (const std::string_view op : kOperators) {
      if (!At(op)) continue;
      if (op == "(" || op == "[" || op == "{") open_brackets->push_back(op[0]);
      if (op == ")" || op == "]" || op == "}") {
        const char opener = op == ")" ? '(' : op == "]" ? '[' : '{';
        if (open_brackets->empty() || open_brackets->back() != opener) {
          return Error("unexpected '", op, "'");
        }
        open_brackets->pop_back();
      }
      Emit(Kind::kOperator, op);
      Advance(op.size());
      return absl::OkStatus();
    }
    return Error("unexpected character '", Rest().substr(0, DecodeUtf8(source_, pos_).bytes), "'");
  }

  // Returns the offset behind the digits at `offset`. Single underscores may separate digits.
  size_t EndOfDigits(size_t offset) const {
    while (offset < source_.size() && (absl::ascii_isdigit(source_[offset]) ||
                                       (source_[offset] == '_' && offset + 1 < source_.size() &&
                                        absl::ascii_isdigit(source_[offset + 1]) &&
                                        absl::ascii_isdigit(source_[offset - 1])))) {
      ++offset;
    }
    return offset;
  }
  bool DigitAt(size_t offset) const {
    return offset < source_.size() && absl::ascii_isdigit(source_[offset]);
  }

  absl::Status LexHexadecimal() {
    size_t end = pos_ + 2;
    while (end < source_.size() && absl::ascii_isxdigit(source_[end])) ++end;
    const std::string digits(Rest().substr(0, end - pos_));
    if (!absl::SimpleHexAtoi(digits, &Emit(Kind::kInt, digits).int_value)) {
      return Error("number ", digits, " does not fit 64 bits");
    }
    Advance(end - pos_);
    return absl::OkStatus();
  }

  absl::Status LexNumber() {
    if ((At("0x") || At("0X")) && pos_ + 2 < source_.size() &&
        absl::ascii_isxdigit(source_[pos_ + 2])) {
      return LexHexadecimal();
    }
    size_t end = EndOfDigits(pos_);
    bool is_float = false;
    if (pos_ == 0 || source_[pos_ - 1] != '.') {  // "x.0.1" is two subscripts, not a float
      if (end < source_.size() && source_[end] == '.' && DigitAt(end + 1)) {
        is_float = true;
        end = EndOfDigits(end + 1);
      }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        const bool sign =
            end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-');
        if (DigitAt(end + 1 + sign)) {
          is_float = true;
          end = EndOfDigits(end + 1 + sign);
        }
      }
    }
    std::string digits(Rest().substr(0, end - pos_));
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    JinjaToken& token = Emit(is_float ? Kind::kFloat : Kind::kInt, digits);
    const bool parsed = is_float ? absl::SimpleAtod(digits, &token.float_value)
                                 : absl::SimpleAtoi(digits, &token.int_value);
    if (!parsed) return Error("number ", digits, " does not fit 64 bits");
    if (!is_float && digits.size() > 1 && digits[0] == '0' && token.int_value != 0) {
      return Error("number ", digits, " starts with a zero");
    }
    Advance(end - pos_);
    return absl::OkStatus();
  }

  absl::Status LexString(char quote) {
    size_t end = pos_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return Error("the string has no closing quote");
    const std::string_view raw = std::string_view(source_).substr(pos_ + 1, end - pos_ - 1);
    std::string text;
    for (size_t i = 0; i < raw.size();) {
      if (raw[i] != '\\') {
        text.push_back(raw[i++]);
        continue;
      }
      RETURN_IF_ERROR(LexEscape(raw, &i, &text));
    }
    Emit(Kind::kString, text);
    Advance(end + 1 - pos_);
    return absl::OkStatus();
  }

  // Lexes the escape sequence of a Python string at raw[*i]. An unknown escape is kept as it is.
  absl::Status LexEscape(std::string_view raw, size_t* i, std::string* text) const {
    static constexpr std::string_view kLetters = "abfnrtv\\'\"\n";
    static constexpr std::array<std::string_view, 11> kMeanings = {
        "\a", "\b", "\f", "\n", "\r", "\t", "\v", "\\", "'", "\"", ""};
    const char letter = raw[*i + 1];
    if (const size_t known = kLetters.find(letter); known != std::string_view::npos) {
      text->append(kMeanings[known]);
      *i += 2;
      return absl::OkStatus();
    }
    if (letter >= '0' && letter <= '7') {
      uint32_t value = 0;
      size_t k = *i + 1;
      for (; k < raw.size() && k < *i + 4 && raw[k] >= '0' && raw[k] <= '7'; ++k) {
        value = value * 8 + static_cast<uint32_t>(raw[k] - '0');
      }
      AppendUtf8(value, text);
      *i = k;
      return absl::OkStatus();
    }
    if (letter == 'N') return Error("the escape \\N is not supported");
    const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    if (digits == 0) {
      text->push_back('\\');
      *i += 1;
      return absl::OkStatus();
    }
    const std::string_view hex = raw.substr(*i + 2, digits);
    uint32_t value = 0;
    if (hex.size() != digits || !absl::SimpleHexAtoi(std::string(hex), &value) ||
        !std::all_of(hex.begin(), hex.end(), absl::ascii_isxdigit) || !AppendUtf8(value, text)) {
      return Error("the escape \\", raw.substr(*i + 1, digits + 1), " is not a character");
    }
    *i += 2 + digits;
    return absl::OkStatus();
  }

  std::string source_;
  size_t pos_ = 0;
  int line_ = 1;
  std::vector<JinjaToken> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<JinjaToken>> LexJinja(std::string_view source) {
  return Lexer(source).Run();
}

}  // namespace baton
