#include "text/jinja/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "text/jinja/error.h"
#include "text/jinja/unicode.h"

namespace baton {
namespace {

using Type = JinjaValue::Type;
using SequenceKind = JinjaSequence::Kind;

std::string ScalarText(const JinjaValue& value, bool json) {
  if (value.IsNone()) return json ? "null" : "None";
  if (value.Is(Type::kBool)) {
    if (json) return value.bool_value() ? "true" : "false";
    return value.bool_value() ? "True" : "False";
  }
  if (value.Is(Type::kInt)) return JinjaMessage(value.AsInt());
  const double number = value.float_value();
  if (json && std::isnan(number)) return "NaN";
  if (json && std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
  return JinjaFloatText(number);
}

// Collects text and charges each piece to the meter. The result is trusted if all pieces are.
class Writer {
 public:
  explicit Writer(JinjaMeter& meter) : meter_(meter) {}

  absl::Status Put(std::string_view piece, bool trusted = true) {
    RETURN_IF_ERROR(meter_.AddSteps(1));
    RETURN_IF_ERROR(meter_.AddBytes(piece.size()));
    text_.append(piece);
    trusted_ = trusted_ && trusted;
    return absl::OkStatus();
  }
  // Appends `string` in escaped form. For the code point at `offset`, `escape(offset, &text)`
  // appends the escaped form to `text` and returns how many bytes of `string` it consumed.
  template <typename Escape>
  absl::Status PutEscaped(const JinjaString& string, const Escape& escape) {
    static constexpr size_t kFlushBytes = 4096;
    const bool trusted = string.AllTrusted();
    RETURN_IF_ERROR(meter_.AddBytes(string.size()));
    std::string text;
    for (size_t i = 0; i < string.size();) {
      i += escape(i, &text);
      if (text.size() < kFlushBytes) continue;
      RETURN_IF_ERROR(Put(text, trusted));
      text.clear();
    }
    return Put(text, trusted);
  }
  JinjaString Finish() const { return JinjaString(text_, trusted_); }

 private:
  JinjaMeter& meter_;
  std::string text_;
  bool trusted_ = true;
};

absl::Status WriteQuoted(const JinjaString& string, Writer& out) {
  const std::string& bytes = string.bytes();
  if (!IsAscii(bytes)) {
    return JinjaUnsupported("printing a list or dict with non-ASCII text is not supported");
  }
  const bool has_single = bytes.find('\'') != std::string::npos;
  const char quote = has_single && bytes.find('"') == std::string::npos ? '"' : '\'';
  RETURN_IF_ERROR(out.Put(std::string_view(&quote, 1)));
  RETURN_IF_ERROR(out.PutEscaped(string, [&](size_t i, std::string* text) {
    const char c = bytes[i];
    if (c == quote || c == '\\') {
      *text += '\\';
      *text += c;
    } else if (c == '\n' || c == '\r' || c == '\t') {
      *text += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (c < 0x20 || c == 0x7F) {
      *text += absl::StrFormat("\\x%02x", c);
    } else {
      *text += c;
    }
    return size_t{1};
  }));
  return out.Put(std::string_view(&quote, 1));
}

absl::Status WriteRepr(const JinjaValue& value, Writer& out) {
  switch (value.type()) {
    case Type::kUndefined:
      return out.Put("Undefined");
    case Type::kNone:
    case Type::kBool:
    case Type::kInt:
    case Type::kFloat:
      return out.Put(ScalarText(value, false), value.trusted_number());
    case Type::kString:
      return WriteQuoted(value.string(), out);
    case Type::kSequence: {
      const JinjaSequence& sequence = value.sequence();
      if (sequence.kind != SequenceKind::kList && sequence.kind != SequenceKind::kTuple) break;
      const bool list = sequence.kind == SequenceKind::kList;
      RETURN_IF_ERROR(out.Put(list ? "[" : "("));
      for (size_t i = 0; i < sequence.items.size(); ++i) {
        if (i > 0) RETURN_IF_ERROR(out.Put(", "));
        RETURN_IF_ERROR(WriteRepr(sequence.items[i], out));
      }
      if (!list && sequence.items.size() == 1) RETURN_IF_ERROR(out.Put(","));
      return out.Put(list ? "]" : ")");
    }
    case Type::kDict: {
      RETURN_IF_ERROR(out.Put("{"));
      bool first = true;
      for (const auto& [key, item] : value.dict().entries) {
        if (!first) RETURN_IF_ERROR(out.Put(", "));
        first = false;
        RETURN_IF_ERROR(WriteRepr(key, out));
        RETURN_IF_ERROR(out.Put(": "));
        RETURN_IF_ERROR(WriteRepr(item, out));
      }
      return out.Put("}");
    }
    default:
      break;
  }
  return JinjaUnsupported("printing a ", value.TypeName(), " is not supported");
}

class JsonWriter {
 public:
  JsonWriter(const JinjaJsonOptions& options, JinjaMeter& meter)
      : options_(options), meter_(meter), out_(meter) {}

  absl::Status Write(const JinjaValue& value, int level) {
    switch (value.type()) {
      case Type::kNone:
      case Type::kBool:
      case Type::kInt:
      case Type::kFloat:
        return out_.Put(ScalarText(value, true), value.trusted_number());
      case Type::kString:
        return WriteString(value.string());
      case Type::kSequence:
        if (value.sequence().kind != SequenceKind::kList &&
            value.sequence().kind != SequenceKind::kTuple) {
          break;
        }
        return WriteList(value.sequence().items, level);
      case Type::kDict:
        return WriteDict(value.dict(), level);
      default:
        break;
    }
    return JinjaError("a ", value.TypeName(), " cannot be written as JSON");
  }
  JinjaString Finish() const { return out_.Finish(); }

 private:
  absl::Status PutText(const JinjaString& text) {
    return out_.Put(text.bytes(), text.AllTrusted());
  }

  absl::Status NextItem() {
    if (options_.item_separator.has_value()) return PutText(*options_.item_separator);
    return out_.Put(options_.indent >= 0 ? "," : ", ");
  }

  absl::Status NewLine(int level) {
    if (options_.indent < 0) return absl::OkStatus();
    return out_.Put("\n" + std::string(static_cast<size_t>(options_.indent * level), ' '));
  }

  absl::Status WriteList(const std::vector<JinjaValue>& items, int level) {
    if (items.empty()) return out_.Put("[]");
    RETURN_IF_ERROR(out_.Put("["));
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) RETURN_IF_ERROR(NextItem());
      RETURN_IF_ERROR(NewLine(level + 1));
      RETURN_IF_ERROR(Write(items[i], level + 1));
    }
    RETURN_IF_ERROR(NewLine(level));
    return out_.Put("]");
  }

  absl::Status WriteDict(const JinjaDict& dict, int level) {
    if (dict.entries.empty()) return out_.Put("{}");
    std::vector<const std::pair<JinjaValue, JinjaValue>*> entries;
    for (const auto& entry : dict.entries) {
      if (entry.first.Is(Type::kSequence)) return JinjaError("a JSON key cannot be a tuple");
      if (options_.sort_keys && !entry.first.IsString()) {
        return JinjaUnsupported("sort_keys with keys that are not strings is not supported");
      }
      entries.push_back(&entry);
    }
    if (options_.sort_keys) {
      size_t longest_bytes = 0;
      for (const auto* entry : entries) {
        longest_bytes = std::max(longest_bytes, entry->first.string().size());
      }
      RETURN_IF_ERROR(meter_.AddSort(entries.size(), longest_bytes));
      std::stable_sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
        return a->first.bytes() < b->first.bytes();
      });
    }
    RETURN_IF_ERROR(out_.Put("{"));
    for (size_t i = 0; i < entries.size(); ++i) {
      const auto& [key, value] = *entries[i];
      if (i > 0) RETURN_IF_ERROR(NextItem());
      RETURN_IF_ERROR(NewLine(level + 1));
      RETURN_IF_ERROR(key.IsString() ? WriteString(key.string())
                                     : out_.Put(JinjaMessage("\"", ScalarText(key, true), "\"")));
      RETURN_IF_ERROR(PutText(options_.key_separator));
      RETURN_IF_ERROR(Write(value, level + 1));
    }
    RETURN_IF_ERROR(NewLine(level));
    return out_.Put("}");
  }

  absl::Status WriteString(const JinjaString& string) {
    static constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f";
    static constexpr std::string_view kLetters = "\"\\nrtbf";
    const std::string& bytes = string.bytes();
    RETURN_IF_ERROR(out_.Put("\""));
    RETURN_IF_ERROR(out_.PutEscaped(string, [&](size_t i, std::string* text) {
      const CodePoint point = DecodeUtf8(bytes, i);
      const size_t escape = point.bytes == 1 ? kEscaped.find(bytes[i]) : std::string_view::npos;
      if (escape != std::string_view::npos) {
        *text += '\\';
        *text += kLetters[escape];
      } else if (point.value < 0x20 || (options_.ensure_ascii && point.value == 0x7F)) {
        *text +=
            point.value == 0x7F ? std::string("\x7f") : absl::StrFormat("\\u%04x", point.value);
      } else if (options_.ensure_ascii && point.value > 0xFFFF) {
        const uint32_t offset = point.value - 0x10000;
        *text +=
            absl::StrFormat("\\u%04x\\u%04x", 0xD800 + (offset >> 10), 0xDC00 + (offset & 0x3FF));
      } else if (options_.ensure_ascii && point.value > 0x7F) {
        *text += absl::StrFormat("\\u%04x", point.value);
      } else {
        text->append(bytes, i, point.bytes);
      }
      return point.bytes;
    }));
    return out_.Put("\"");
  }

  const JinjaJsonOptions& options_;
  JinjaMeter& meter_;
  Writer out_;
};

}  // namespace

std::string JinjaFloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  // Python uses exponents outside [1e-4, 1e16).
  const double magnitude = std::fabs(value);
  const bool plain = value == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const auto end = std::to_chars(std::begin(buffer), std::end(buffer), value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer, end.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

absl::StatusOr<JinjaString> JinjaToString(const JinjaValue& value, JinjaMeter& meter) {
  if (value.IsUndefined()) return JinjaString();
  if (value.IsString()) {
    RETURN_IF_ERROR(meter.AddBytes(value.string().CostBytes()));
    return value.string();
  }
  Writer out(meter);
  RETURN_IF_ERROR(WriteRepr(value, out));
  return out.Finish();
}

absl::StatusOr<JinjaString> JinjaToJson(const JinjaValue& value, const JinjaJsonOptions& options,
                                        JinjaMeter& meter) {
  if (options.indent > kMaxJinjaJsonIndent) {
    return JinjaLimitReached("tojson asks for an indent of ", options.indent, "; the limit is ",
                             kMaxJinjaJsonIndent);
  }
  JsonWriter writer(options, meter);
  RETURN_IF_ERROR(writer.Write(value, 0));
  return writer.Finish();
}

}  // namespace baton
