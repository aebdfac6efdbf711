#include "requests/json_text.h"

#include <algorithm>

#include "common/error_details.h"
#include "common/printable_text.h"
#include "common/str_cat.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxShownFaultBytes = 200;

// Walks over a text that should be JSON. No step goes beyond the end of the text, so text that is
// not JSON gives a wrong place but no crash.
class JsonWalk {
 public:
  explicit JsonWalk(std::string_view text) : text_(text) {}

  bool At(size_t at, char c) const { return at < text_.size() && text_[at] == c; }

  size_t SkipSpace(size_t at) const {
    return std::min(text_.find_first_not_of(" \t\r\n", at), text_.size());
  }

  // `at` is the opening quote. Returns the byte after the closing one.
  size_t SkipString(size_t at) const {
    for (++at; at < text_.size(); ++at) {
      if (text_[at] == '\\') {
        ++at;
      } else if (text_[at] == '"') {
        return at + 1;
      }
    }
    return text_.size();
  }

  // Skips a string, a bracket, a comma, or a run of other bytes.
  size_t SkipToken(size_t at) const {
    if (At(at, '"')) return SkipString(at);
    const size_t end = std::min(text_.find_first_of("{}[],:\" \t\r\n", at), text_.size());
    return end == at ? std::min(at + 1, text_.size()) : end;
  }

  size_t SkipValue(size_t at) const {
    int depth = 0;
    for (at = SkipSpace(at); at < text_.size(); at = SkipSpace(at)) {
      if (text_[at] == '{' || text_[at] == '[') ++depth;
      if (text_[at] == '}' || text_[at] == ']') --depth;
      at = SkipToken(at);
      if (depth <= 0) return at;
    }
    return at;
  }

  // Returns the start of the first value or key inside more than `max_depth` brackets.
  size_t FirstDeeperThan(int max_depth) const {
    int open = 0;
    for (size_t at = SkipSpace(0); at < text_.size(); at = SkipSpace(SkipToken(at))) {
      const char c = text_[at];
      if (c == '}' || c == ']') {
        --open;
      } else if (c != ',' && c != ':') {
        if (open > max_depth) return at;
        if (c == '{' || c == '[') ++open;
      }
    }
    return 0;
  }

  // Returns the start of the token that contains the byte `inside`.
  size_t TokenWith(size_t inside) const {
    size_t at = SkipSpace(0);
    while (at < text_.size()) {
      const size_t end = SkipToken(at);
      if (end > inside) break;
      at = SkipSpace(end);
    }
    return std::min(at, text_.size());
  }

 private:
  const std::string_view text_;
};

// Returns true if the string literal `quoted`, with its quotes, means `key`.
bool Means(std::string_view quoted, std::string_view key) {
  if (quoted.size() < 2) return false;
  if (quoted.find('\\') == std::string_view::npos)
    return quoted.substr(1, quoted.size() - 2) == key;
  const Json json = Json::parse(quoted, nullptr, /*allow_exceptions=*/false);
  return json.is_string() && json.get_ref<const std::string&>() == key;
}

// Receives the place and the reason of a syntax error from the parser.
class SyntaxErrorCatcher final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    position_ = position;
    what_ = error.what();
    return false;
  }

  // Number of bytes read, with the wrong one.
  size_t position() const { return position_; }

  // Shortens "[json.exception.parse_error.101] parse error at line 1, column 9: syntax error while
  // parsing value - unexpected ']'; expected …" to the reason, without the token, which can be
  // long.
  std::string Reason() const {
    std::string reason = what_;
    const size_t code_end = reason.find("] ");
    if (code_end != std::string::npos) reason.erase(0, code_end + 2);
    if (reason.starts_with("parse error")) {
      const size_t dash = reason.find(" - ");
      const size_t begin = dash != std::string::npos ? dash + 3 : 0;
      reason.erase(0, begin);
    }
    const size_t token = reason.find("; last read: '");
    if (token != std::string::npos) {
      const size_t token_end = reason.rfind("'; expected ");
      const bool more = token_end != std::string::npos && token_end > token;
      reason.erase(token, more ? token_end + 1 - token : std::string::npos);
    }
    return Printable(reason, kMaxShownFaultBytes);
  }

 private:
  size_t position_ = 0;
  std::string what_;
};

// The bytes after a character's first one are 10xxxxxx.
bool BeginsCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// Returns "line 3, column 17" for the byte `offset`. Counts the lines of a document.
std::string PlaceOf(std::string_view text, int64_t line, size_t offset) {
  std::string_view before = text.substr(0, std::min(offset, text.size()));
  if (line == kNotALine) {
    line = 1 + std::count(before.begin(), before.end(), '\n');
    before.remove_prefix(before.rfind('\n') + 1);  // npos + 1 is 0
  }
  return StrCat("line ", line, ", column ",
                1 + std::count_if(before.begin(), before.end(), BeginsCharacter));
}

absl::Status FaultOfText(std::string_view text, int64_t line, size_t offset,
                         std::string_view message) {
  return absl::InvalidArgumentError(StrCat(PlaceOf(text, line, offset), ": ", message));
}

absl::Status FaultOfSize(int64_t line, std::string_view message) {
  return absl::InvalidArgumentError(line == kNotALine ? StrCat("the JSON ", message)
                                                      : StrCat("line ", line, ": it ", message));
}

absl::Status SyntaxFault(std::string_view text, int64_t line) {
  SyntaxErrorCatcher catcher;
  Json::sax_parse(text, &catcher);
  const std::string reason = catcher.Reason();
  size_t offset = catcher.position() == 0 ? 0 : catcher.position() - 1;
  // The parser has read the whole token before it reports it as misplaced.
  if (reason.starts_with("unexpected")) offset = JsonWalk(text).TokenWith(offset);
  return FaultOfText(text, line, offset, StrCat("not valid JSON: ", reason));
}

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text, int64_t line, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return FaultOfSize(line, StrCat("has ", text.size(), " bytes; at most ", limits.max_bytes));
  }
  size_t values = 0;
  bool too_deep = false;
  const auto keep = [&](int depth, Json::parse_event_t, Json&) {
    too_deep |= depth > limits.max_depth;
    return depth <= limits.max_depth && ++values <= limits.max_values;
  };
  Json json = Json::parse(text, keep, /*allow_exceptions=*/false);
  if (too_deep) {
    return FaultOfText(text, line, JsonWalk(text).FirstDeeperThan(limits.max_depth),
                       StrCat("it is nested more than ", limits.max_depth, " deep"));
  }
  if (values > limits.max_values) {
    return FaultOfSize(line, StrCat("holds more than ", limits.max_values, " values"));
  }
  if (json.is_discarded()) return SyntaxFault(text, line);
  return json;
}

absl::StatusOr<Json> ParseJsonOutline(std::string_view text, int64_t line, int depth) {
  const auto keep = [depth](int at, Json::parse_event_t, Json&) { return at <= depth; };
  Json json = Json::parse(text, keep, /*allow_exceptions=*/false);
  if (json.is_discarded()) return SyntaxFault(text, line);
  return json;
}

JsonPlace::JsonPlace(std::string_view text, int64_t line) : text_(text), line_(line) {}

JsonPlace::JsonPlace(const JsonPlace* parent, std::string_view key, size_t index)
    : text_(parent->text_), line_(parent->line_), parent_(parent), key_(key), index_(index) {}

JsonPlace JsonPlace::Member(std::string_view key) const {
  JsonPlace place(this, key, 0);
  place.is_member_ = true;
  return place;
}

JsonPlace JsonPlace::Element(size_t index) const { return {this, {}, index}; }

std::string JsonPlace::Name() const { return NameOf(/*with_indexes=*/true); }

std::string JsonPlace::NameWithoutIndexes() const { return NameOf(/*with_indexes=*/false); }

std::string JsonPlace::NameOf(bool with_indexes) const {
  if (parent_ == nullptr) return "";
  const std::string parent = parent_->NameOf(with_indexes);
  if (!is_member_) return with_indexes ? StrCat(parent, "[", index_, "]") : parent + "[]";
  const std::string key = Printable(key_, kMaxShownFaultBytes);
  return parent.empty() ? key : StrCat(parent, ".", key);
}

JsonPlace::Found JsonPlace::Find() const {
  const JsonWalk walk(text_);
  if (parent_ == nullptr) {
    const size_t at = walk.SkipSpace(0);
    return {.key = at, .value = at};
  }
  const Found parent = parent_->Find();
  Found found = parent;
  size_t at = walk.SkipSpace(parent.value + 1);
  for (size_t i = 0; at < text_.size() && !walk.At(at, '}') && !walk.At(at, ']'); ++i) {
    const size_t key = at;
    if (is_member_) {
      const size_t key_end = walk.SkipString(at);
      at = walk.SkipSpace(walk.SkipSpace(key_end) + 1);  // after the colon
      // The parser keeps the last of equal keys.
      if (Means(text_.substr(key, key_end - key), key_)) found = {.key = key, .value = at};
    } else if (i == index_) {
      return {.key = at, .value = at};
    }
    at = walk.SkipSpace(walk.SkipValue(at));
    if (!walk.At(at, ',')) break;
    at = walk.SkipSpace(at + 1);
  }
  return found;
}

absl::Status JsonPlace::FaultAt(size_t offset, std::string_view message) const {
  absl::Status fault = line_ == kNotALine ? absl::InvalidArgumentError(std::string(message))
                                          : FaultOfText(text_, line_, offset, message);
  SetErrorParam(fault, Name());
  return fault;
}

absl::Status JsonPlace::Fault(std::string_view message) const {
  return FaultAt(line_ == kNotALine ? 0 : Find().value, message);
}

absl::Status JsonPlace::FaultOf(std::string_view message) const {
  return Fault(StrCat("\"", Name(), "\" ", message));
}

absl::Status JsonPlace::FaultAtKey(std::string_view message) const {
  return FaultAt(line_ == kNotALine ? 0 : Find().key, message);
}

const Json* FindField(const Json& object, const std::string& name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace baton
