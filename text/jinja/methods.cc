#include "text/jinja/methods.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "common/status_macros.h"
#include "text/jinja/access.h"
#include "text/jinja/error.h"
#include "text/jinja/format.h"
#include "text/jinja/operators.h"
#include "text/jinja/string_operations.h"
#include "text/jinja/unicode.h"

namespace baton {
namespace {

using Type = JinjaValue::Type;
using Names = std::span<const std::string_view>;
using Bound = std::vector<std::optional<JinjaValue>>;
using Result = absl::StatusOr<JinjaValue>;

constexpr std::array<std::string_view, 21> kStringMethods = {
    "strip", "lstrip",     "rstrip",       "startswith",   "endswith", "split",   "rsplit",
    "upper", "lower",      "capitalize",   "title",        "replace",  "join",    "find",
    "count", "splitlines", "removeprefix", "removesuffix", "isdigit",  "isspace", "isalpha"};
constexpr std::array<std::string_view, 26> kOtherStringMethods = {
    "casefold", "center",     "encode",    "expandtabs",   "format",    "format_map", "index",
    "isalnum",  "isascii",    "isdecimal", "isidentifier", "islower",   "isnumeric",  "isprintable",
    "istitle",  "isupper",    "ljust",     "maketrans",    "partition", "rfind",      "rindex",
    "rjust",    "rpartition", "swapcase",  "translate",    "zfill"};
constexpr std::array<std::string_view, 2> kSequenceMethods = {"index", "count"};
constexpr std::array<std::string_view, 9> kOtherListMethods = {
    "append", "extend", "insert", "pop", "remove", "clear", "copy", "sort", "reverse"};
constexpr std::array<std::string_view, 4> kDictMethods = {"items", "keys", "values", "get"};
constexpr std::array<std::string_view, 7> kOtherDictMethods = {
    "clear", "copy", "fromkeys", "pop", "popitem", "setdefault", "update"};
constexpr std::array<std::string_view, 1> kLoopMethods = {"cycle"};
constexpr std::array<std::string_view, 1> kOtherLoopMethods = {"changed"};

bool Has(Names names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::optional<JinjaString> OptionalString(const std::optional<JinjaValue>& value) {
  if (!value.has_value() || value->IsNone()) return std::nullopt;
  return value->string();
}

absl::Status CheckOptionalString(std::string_view method, const std::optional<JinjaValue>& value,
                                 JinjaMeter& meter) {
  if (!value.has_value() || value->IsNone()) return absl::OkStatus();
  if (value->IsString()) return meter.AddBytes(value->string().CostBytes());
  return JinjaError(method, " needs a str and got ", value->TypeName());
}

Result Strip(const JinjaString& self, std::string_view name, const JinjaArguments& arguments,
             JinjaMeter& meter) {
  static constexpr std::string_view kParameters[] = {"chars"};
  ASSIGN_OR_RETURN(const Bound bound, BindJinjaArguments(name, arguments, kParameters, 0, meter));
  RETURN_IF_ERROR(CheckOptionalString(name, bound[0], meter));
  const JinjaSide side = name == "lstrip"   ? JinjaSide::kLeft
                         : name == "rstrip" ? JinjaSide::kRight
                                            : JinjaSide::kBoth;
  const std::optional<JinjaString> characters = OptionalString(bound[0]);
  if (characters.has_value()) {
    RETURN_IF_ERROR(meter.AddBytes(self.size() + characters->size() * sizeof(uint64_t)));
  }
  return NewString(StripJinja(self, side, characters), meter);
}

Result StartsOrEndsWith(const JinjaString& self, std::string_view name,
                        const JinjaArguments& arguments, JinjaMeter& meter) {
  static constexpr std::string_view kParameters[] = {"affix"};
  ASSIGN_OR_RETURN(const Bound bound, BindJinjaArguments(name, arguments, kParameters, 1, meter));
  std::span<const JinjaValue> affixes(&*bound[0], 1);
  if (bound[0]->Is(Type::kSequence) && bound[0]->sequence().kind == JinjaSequence::Kind::kTuple) {
    affixes = bound[0]->sequence().items;
  }
  for (const JinjaValue& affix : affixes) {
    RETURN_IF_ERROR(meter.AddSteps(1));
    if (affix.IsUndefined()) return JinjaError(affix.UndefinedReason());
    if (!affix.IsString()) return JinjaError(name, " needs a str and got ", affix.TypeName());
    RETURN_IF_ERROR(meter.AddBytes(affix.string().size()));
    if (name == "startswith" ? self.bytes().starts_with(affix.bytes())
                             : self.bytes().ends_with(affix.bytes())) {
      return JinjaValue::Bool(true);
    }
  }
  return JinjaValue::Bool(false);
}

Result ListOfStrings(std::vector<JinjaString> strings, JinjaMeter& meter) {
  std::vector<JinjaValue> items;
  items.reserve(strings.size());
  for (JinjaString& string : strings) {
    ASSIGN_OR_RETURN(JinjaValue item, NewString(std::move(string), meter));
    items.push_back(std::move(item));
  }
  return NewList(std::move(items), meter);
}

Result Split(const JinjaString& self, std::string_view name, const JinjaArguments& arguments,
             JinjaMeter& meter) {
  static constexpr std::string_view kParameters[] = {"sep", "maxsplit"};
  ASSIGN_OR_RETURN(const Bound bound, BindJinjaArguments(name, arguments, kParameters, 0, meter));
  RETURN_IF_ERROR(CheckOptionalString(name, bound[0], meter));
  const std::optional<JinjaString> separator = OptionalString(bound[0]);
  if (separator.has_value() && separator->empty()) return JinjaError(name, ": empty separator");
  ASSIGN_OR_RETURN(const int64_t max_splits, JinjaIntArgument(name, bound[1], -1));
  if (name == "rsplit" && max_splits >= 0) {
    if (!separator.has_value()) {
      return JinjaUnsupported("rsplit with maxsplit and no separator is not supported");
    }
    ASSIGN_OR_RETURN(std::vector<JinjaString> pieces,
                     SplitJinjaFromRight(self, *separator, max_splits, meter));
    return ListOfStrings(std::move(pieces), meter);
  }
  if (name == "rsplit" && separator.has_value()) {
    ASSIGN_OR_RETURN(std::vector<JinjaString> pieces,
                     SplitJinjaFromRight(self, *separator, -1, meter));
    return ListOfStrings(std::move(pieces), meter);
  }
  ASSIGN_OR_RETURN(std::vector<JinjaString> pieces, SplitJinja(self, separator, max_splits, meter));
  return ListOfStrings(std::move(pieces), meter);
}

Result Replace(const JinjaString& self, const JinjaArguments& arguments, JinjaMeter& meter) {
  static constexpr std::string_view kParameters[] = {"old", "new", "count"};
  ASSIGN_OR_RETURN(const Bound bound,
                   BindJinjaArguments("replace", arguments, kParameters, 2, meter));
  ASSIGN_OR_RETURN(const JinjaString old, JinjaStringArgument("replace", bound[0], meter));
  ASSIGN_OR_RETURN(const JinjaString replacement, JinjaStringArgument("replace", bound[1], meter));
  ASSIGN_OR_RETURN(const int64_t count, JinjaIntArgument("replace", bound[2], -1));
  ASSIGN_OR_RETURN(JinjaString result, ReplaceJinja(self, old, replacement, count, meter));
  return NewString(std::move(result), meter);
}

Result Join(const JinjaString& self, const JinjaArguments& arguments, JinjaMeter& meter) {
  static constexpr std::string_view kParameters[] = {"iterable"};
  ASSIGN_OR_RETURN(const Bound bound, BindJinjaArguments("join", arguments, kParameters, 1, meter));
  ASSIGN_OR_RETURN(const JinjaValue::SequencePtr items, JinjaItems(*bound[0], meter));
  JinjaString result;
  for (size_t i = 0; i < items->items.size(); ++i) {
    const JinjaValue& item = items->items[i];
    if (!item.IsString()) return JinjaError("join needs strs and got ", item.TypeName());
    RETURN_IF_ERROR(meter.AddBytes(self.CostBytes() + item.string().CostBytes()));
    if (i > 0) result.Append(self);
    result.Append(item.string());
  }
  return NewString(std::move(result), meter);
}

Result FindOrCount(const JinjaString& self, std::string_view name, const JinjaArguments& arguments,
                   JinjaMeter& meter) {
  static constexpr std::string_view kParameters[] = {"sub"};
  ASSIGN_OR_RETURN(const Bound bound, BindJinjaArguments(name, arguments, kParameters, 1, meter));
  ASSIGN_OR_RETURN(const JinjaString needle, JinjaStringArgument(name, bound[0], meter));
  const bool trusted = self.AllTrusted() && needle.AllTrusted();
  ASSIGN_OR_RETURN(size_t found, FindJinja(self.bytes(), needle.bytes(), 0, meter));
  if (name == "find") {
    if (found == std::string::npos) return JinjaValue::Int(-1, trusted);
    const size_t position = CountCodePoints(std::string_view(self.bytes()).substr(0, found));
    return JinjaValue::Int(static_cast<int64_t>(position), trusted);
  }
  if (needle.empty()) {
    return JinjaValue::Int(static_cast<int64_t>(CountCodePoints(self.bytes())) + 1, trusted);
  }
  int64_t count = 0;
  while (found != std::string::npos) {
    ++count;
    ASSIGN_OR_RETURN(found, FindJinja(self.bytes(), needle.bytes(), found + needle.size(), meter));
  }
  return JinjaValue::Int(count, trusted);
}

Result RemoveAffix(const JinjaString& self, std::string_view name, const JinjaArguments& arguments,
                   JinjaMeter& meter) {
  static constexpr std::string_view kParameters[] = {"affix"};
  ASSIGN_OR_RETURN(const Bound bound, BindJinjaArguments(name, arguments, kParameters, 1, meter));
  ASSIGN_OR_RETURN(const JinjaString affix, JinjaStringArgument(name, bound[0], meter));
  size_t begin = 0;
  size_t end = self.size();
  if (name == "removeprefix" && self.bytes().starts_with(affix.bytes())) begin = affix.size();
  if (name == "removesuffix" && self.bytes().ends_with(affix.bytes())) end -= affix.size();
  return NewString(self.Substring(begin, end), meter);
}

Result AllCharacters(const JinjaString& self, std::string_view name) {
  if (name == "isspace") {
    return JinjaValue::Bool(!self.empty() && SkipUnicodeSpace(self.bytes(), 0) == self.size());
  }
  if (!IsAscii(self.bytes())) {
    return JinjaUnsupported(name, " of non-ASCII text is not supported");
  }
  const bool all = std::all_of(self.bytes().begin(), self.bytes().end(), [&](char c) {
    return name == "isdigit" ? absl::ascii_isdigit(c) : absl::ascii_isalpha(c);
  });
  return JinjaValue::Bool(all && !self.empty());
}

Result CallStringMethod(const JinjaString& self, std::string_view name,
                        const JinjaArguments& arguments, JinjaMeter& meter) {
  RETURN_IF_ERROR(meter.AddBytes(self.size()));
  if (name.ends_with("strip")) return Strip(self, name, arguments, meter);
  if (name.ends_with("with")) return StartsOrEndsWith(self, name, arguments, meter);
  if (name.ends_with("split")) return Split(self, name, arguments, meter);
  if (name == "replace") return Replace(self, arguments, meter);
  if (name == "join") return Join(self, arguments, meter);
  if (name == "find" || name == "count") return FindOrCount(self, name, arguments, meter);
  if (name.starts_with("remove")) return RemoveAffix(self, name, arguments, meter);
  RETURN_IF_ERROR(BindJinjaArguments(name, arguments, {}, 0, meter).status());
  if (name.starts_with("is")) return AllCharacters(self, name);
  if (name == "splitlines") {
    ASSIGN_OR_RETURN(std::vector<JinjaString> lines, SplitJinjaLines(self, meter));
    return ListOfStrings(std::move(lines), meter);
  }
  const JinjaCase change = name == "upper"        ? JinjaCase::kUpper
                           : name == "lower"      ? JinjaCase::kLower
                           : name == "capitalize" ? JinjaCase::kCapitalize
                                                  : JinjaCase::kTitle;
  ASSIGN_OR_RETURN(JinjaString changed, ChangeJinjaCase(self, change));
  return NewString(std::move(changed), meter);
}

Result CallSequenceMethod(const JinjaSequence& self, std::string_view name,
                          const JinjaArguments& arguments, JinjaMeter& meter) {
  static constexpr std::string_view kParameters[] = {"value"};
  ASSIGN_OR_RETURN(const Bound bound, BindJinjaArguments(name, arguments, kParameters, 1, meter));
  int64_t count = 0;
  for (size_t i = 0; i < self.items.size(); ++i) {
    ASSIGN_OR_RETURN(const bool same, JinjaEquals(self.items[i], *bound[0], meter));
    if (same && name == "index") return JinjaValue::Int(static_cast<int64_t>(i));
    count += same ? 1 : 0;
  }
  if (name == "index") return JinjaError("index: the value is not in the list");
  return JinjaValue::Int(count);
}

Result CallDictMethod(const JinjaDict& self, std::string_view name, const JinjaArguments& arguments,
                      JinjaMeter& meter) {
  if (name == "get") {
    static constexpr std::string_view kParameters[] = {"key", "default"};
    ASSIGN_OR_RETURN(const Bound bound, BindJinjaArguments(name, arguments, kParameters, 1, meter));
    ASSIGN_OR_RETURN(const JinjaValue* found, JinjaLookUp(self, *bound[0], meter));
    return found != nullptr ? *found : bound[1].value_or(JinjaValue::None());
  }
  RETURN_IF_ERROR(BindJinjaArguments(name, arguments, {}, 0, meter).status());
  std::vector<JinjaValue> items;
  for (const auto& [key, value] : self.entries) {
    if (name != "items") {
      items.push_back(name == "keys" ? key : value);
      continue;
    }
    ASSIGN_OR_RETURN(JinjaValue pair,
                     NewSequence(JinjaSequence::Kind::kTuple, {key, value}, meter));
    items.push_back(std::move(pair));
  }
  return NewSequence(JinjaSequence::Kind::kView, std::move(items), meter);
}

}  // namespace

JinjaMethodSupport FindJinjaMethod(const JinjaValue& receiver, std::string_view name) {
  Names supported;
  Names others;
  switch (receiver.type()) {
    case Type::kString:
      supported = kStringMethods;
      others = kOtherStringMethods;
      break;
    case Type::kSequence:
      if (receiver.sequence().kind == JinjaSequence::Kind::kView ||
          receiver.sequence().kind == JinjaSequence::Kind::kGenerator) {
        break;
      }
      supported = kSequenceMethods;
      if (receiver.sequence().kind == JinjaSequence::Kind::kList) others = kOtherListMethods;
      break;
    case Type::kDict:
      supported = kDictMethods;
      others = kOtherDictMethods;
      break;
    case Type::kLoop:
      supported = kLoopMethods;
      others = kOtherLoopMethods;
      break;
    default:
      break;
  }
  if (Has(supported, name)) return JinjaMethodSupport::kSupported;
  return Has(others, name) ? JinjaMethodSupport::kUnsupported : JinjaMethodSupport::kNone;
}

absl::StatusOr<JinjaValue> CallJinjaMethod(const JinjaValue& receiver, std::string_view name,
                                           const JinjaArguments& arguments, JinjaMeter& meter) {
  switch (receiver.type()) {
    case Type::kString:
      return CallStringMethod(receiver.string(), name, arguments, meter);
    case Type::kSequence:
      return CallSequenceMethod(receiver.sequence(), name, arguments, meter);
    case Type::kDict:
      return CallDictMethod(receiver.dict(), name, arguments, meter);
    default: {  // loop.cycle
      if (arguments.positional.empty() || !arguments.named.empty()) {
        return JinjaError("cycle needs values to choose from");
      }
      return arguments.positional[receiver.loop().index % arguments.positional.size()];
    }
  }
}

}  // namespace baton
