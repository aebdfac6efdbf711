#include "text/jinja/filters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "text/jinja/access.h"
#include "text/jinja/error.h"
#include "text/jinja/format.h"
#include "text/jinja/is_tests.h"
#include "text/jinja/operators.h"
#include "text/jinja/string_operations.h"
#include "text/jinja/unicode.h"

namespace baton {
namespace {

using Type = JinjaValue::Type;
using SequenceKind = JinjaSequence::Kind;
using Bound = std::vector<std::optional<JinjaValue>>;
using Result = absl::StatusOr<JinjaValue>;

// Arguments of a filter. Several filters share one function; `name` says which filter it is.
struct FilterCall {
  std::string_view name;
  const JinjaValue& input;
  const JinjaArguments& arguments;
  JinjaMeter& meter;

  template <size_t N>
  absl::StatusOr<Bound> Bind(const std::string_view (&parameters)[N], size_t required = 0) const {
    return BindJinjaArguments(name, arguments, parameters, required, meter);
  }
  absl::Status BindNothing() const {
    return BindJinjaArguments(name, arguments, {}, 0, meter).status();
  }
};

bool IsTrue(const std::optional<JinjaValue>& value) { return value.has_value() && value->Truthy(); }

Result Trim(const FilterCall& call) {
  ASSIGN_OR_RETURN(const Bound bound, call.Bind({"chars"}));
  ASSIGN_OR_RETURN(const JinjaString text, JinjaToString(call.input, call.meter));
  std::optional<JinjaString> characters;
  if (bound[0].has_value() && !bound[0]->IsNone()) {
    ASSIGN_OR_RETURN(characters, JinjaStringArgument("trim", bound[0], call.meter));
    RETURN_IF_ERROR(call.meter.AddBytes(text.size() + characters->size() * sizeof(uint64_t)));
  }
  return NewString(StripJinja(text, JinjaSide::kBoth, characters), call.meter);
}

Result Case(const FilterCall& call) {
  RETURN_IF_ERROR(call.BindNothing());
  ASSIGN_OR_RETURN(const JinjaString text, JinjaToString(call.input, call.meter));
  const JinjaCase change = call.name == "upper"        ? JinjaCase::kUpper
                           : call.name == "lower"      ? JinjaCase::kLower
                           : call.name == "capitalize" ? JinjaCase::kCapitalize
                                                       : JinjaCase::kTitleFilter;
  ASSIGN_OR_RETURN(JinjaString changed, ChangeJinjaCase(text, change));
  return NewString(std::move(changed), call.meter);
}

Result Length(const FilterCall& call) {
  RETURN_IF_ERROR(call.BindNothing());
  return JinjaLength(call.input, call.meter);
}

Result Default(const FilterCall& call) {
  ASSIGN_OR_RETURN(const Bound bound, call.Bind({"default_value", "boolean"}));
  if (call.input.IsUndefined() || (IsTrue(bound[1]) && !call.input.Truthy())) {
    return bound[0].value_or(JinjaValue::String(JinjaString()));
  }
  return call.input;
}

// Returns the part of `item` that `attribute`, such as "function.name" or 0, selects.
Result Dig(const JinjaValue& item, const JinjaValue& attribute, JinjaMeter& meter) {
  if (!attribute.IsString()) return JinjaSubscript(item, attribute, meter);
  JinjaValue value = item;
  RETURN_IF_ERROR(meter.AddBytes(attribute.bytes().size()));
  for (const absl::string_view piece : absl::StrSplit(attribute.bytes(), '.')) {
    const std::string part(piece);
    int64_t index = 0;
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    if (number && !absl::SimpleAtoi(part, &index))
      return JinjaError("index ", part, " is too large");
    JinjaValue key = JinjaValue::Int(index);
    if (!number) {
      ASSIGN_OR_RETURN(key, NewString({part, true}, meter));
    }
    RETURN_IF_ERROR(meter.AddSteps(1));
    ASSIGN_OR_RETURN(value, JinjaSubscript(value, key, meter));
  }
  return value;
}

Result Join(const FilterCall& call) {
  ASSIGN_OR_RETURN(const Bound bound, call.Bind({"d", "attribute"}));
  JinjaString separator;
  if (bound[0].has_value()) {
    ASSIGN_OR_RETURN(separator, JinjaToString(*bound[0], call.meter));
  }
  ASSIGN_OR_RETURN(const JinjaValue::SequencePtr items, JinjaItems(call.input, call.meter));
  JinjaString result;
  for (size_t i = 0; i < items->items.size(); ++i) {
    JinjaValue item = items->items[i];
    if (bound[1].has_value() && !bound[1]->IsNone()) {
      ASSIGN_OR_RETURN(item, Dig(item, *bound[1], call.meter));
    }
    ASSIGN_OR_RETURN(const JinjaString text, JinjaToString(item, call.meter));
    RETURN_IF_ERROR(call.meter.AddBytes(separator.CostBytes() + text.CostBytes()));
    if (i > 0) result.Append(separator);
    result.Append(text);
  }
  return NewString(std::move(result), call.meter);
}

Result FirstOrLast(const FilterCall& call) {
  RETURN_IF_ERROR(call.BindNothing());
  const bool first = call.name == "first";
  if (!first && call.input.Is(Type::kSequence) &&
      call.input.sequence().kind == SequenceKind::kGenerator) {
    return JinjaError("a generator has no last item");
  }
  ASSIGN_OR_RETURN(const JinjaValue::SequencePtr items, JinjaItems(call.input, call.meter));
  if (items->items.empty()) {
    return JinjaValue::Undefined(JinjaMessage("No ", call.name, " item, sequence was empty."));
  }
  return first ? items->items.front() : items->items.back();
}

Result ToJson(const FilterCall& call) {
  ASSIGN_OR_RETURN(const Bound bound,
                   call.Bind({"ensure_ascii", "indent", "separators", "sort_keys"}));
  JinjaJsonOptions options;
  options.ensure_ascii = IsTrue(bound[0]);
  options.sort_keys = IsTrue(bound[3]);
  if (bound[1].has_value() && !bound[1]->IsNone()) {
    ASSIGN_OR_RETURN(const int64_t indent, JinjaIntArgument("tojson", bound[1], 0));
    options.indent = static_cast<int>(std::clamp<int64_t>(indent, 0, kMaxJinjaJsonIndent + 1));
  }
  if (bound[2].has_value() && !bound[2]->IsNone()) {
    if (!bound[2]->Is(Type::kSequence) || bound[2]->sequence().items.size() != 2 ||
        !bound[2]->sequence().items[0].IsString() || !bound[2]->sequence().items[1].IsString()) {
      return JinjaError("tojson needs two strs as separators");
    }
    ASSIGN_OR_RETURN(options.item_separator,
                     JinjaStringArgument("tojson", bound[2]->sequence().items[0], call.meter));
    ASSIGN_OR_RETURN(options.key_separator,
                     JinjaStringArgument("tojson", bound[2]->sequence().items[1], call.meter));
  }
  ASSIGN_OR_RETURN(JinjaString text, JinjaToJson(call.input, options, call.meter));
  return NewString(std::move(text), call.meter);
}

Result String(const FilterCall& call) {
  RETURN_IF_ERROR(call.BindNothing());
  if (call.input.IsString()) return call.input;
  ASSIGN_OR_RETURN(JinjaString text, JinjaToString(call.input, call.meter));
  return NewString(std::move(text), call.meter);
}

// The filters int and float, of a number or of text. They return the default if Python raises.
Result Number(const FilterCall& call) {
  const bool to_int = call.name == "int";
  ASSIGN_OR_RETURN(const Bound bound, call.Bind({"default"}));
  if (call.input.IsUndefined()) return JinjaError(call.input.UndefinedReason());
  const JinjaValue otherwise =
      bound[0].value_or(to_int ? JinjaValue::Int(0) : JinjaValue::Float(0));
  double number = 0;
  bool trusted = call.input.trusted_number();
  if (call.input.IsIntegral()) {
    if (to_int) return JinjaValue::Int(call.input.AsInt(), trusted);
    return JinjaValue::Float(call.input.AsDouble(), trusted);
  } else if (call.input.Is(Type::kFloat)) {
    number = call.input.float_value();
  } else if (call.input.IsString()) {
    RETURN_IF_ERROR(call.meter.AddBytes(call.input.string().CostBytes()));
    const JinjaString text = StripJinja(call.input.string(), JinjaSide::kBoth, std::nullopt);
    if (!IsAscii(text.bytes()) || text.bytes().find('_') != std::string::npos) {
      return JinjaUnsupported(call.name, " of this text is not supported");
    }
    trusted = text.AllTrusted();
    const bool hexadecimal = text.bytes().find_first_of("xXpP(") != std::string::npos;
    int64_t integer = 0;
    if (to_int && absl::SimpleAtoi(text.bytes(), &integer))
      return JinjaValue::Int(integer, trusted);
    if (hexadecimal || !absl::SimpleAtod(text.bytes(), &number)) return otherwise;
  } else {
    return otherwise;
  }
  if (!to_int) return JinjaValue::Float(number, trusted);
  if (!std::isfinite(number)) return otherwise;
  if (std::fabs(number) >= 0x1p53) return JinjaError("int of ", number, " is too large");
  return JinjaValue::Int(static_cast<int64_t>(number), trusted);
}

Result List(const FilterCall& call) {
  RETURN_IF_ERROR(call.BindNothing());
  ASSIGN_OR_RETURN(const JinjaValue::SequencePtr items, JinjaItems(call.input, call.meter));
  return NewList(items->items, call.meter);
}

Result Pairs(const JinjaDict& dict, SequenceKind kind,
             const std::vector<const std::pair<JinjaValue, JinjaValue>*>& order,
             JinjaMeter& meter) {
  std::vector<JinjaValue> items;
  items.reserve(dict.entries.size());
  for (const auto* entry : order) {
    ASSIGN_OR_RETURN(JinjaValue pair,
                     NewSequence(SequenceKind::kTuple, {entry->first, entry->second}, meter));
    items.push_back(std::move(pair));
  }
  return NewSequence(kind, std::move(items), meter);
}

Result Items(const FilterCall& call) {
  if (call.name == "items") RETURN_IF_ERROR(call.BindNothing());
  if (call.name == "items" && call.input.IsUndefined()) {
    return NewSequence(SequenceKind::kGenerator, {}, call.meter);
  }
  if (!call.input.Is(Type::kDict)) {
    return JinjaError(call.name, " needs a dict and got ", call.input.TypeName());
  }
  std::vector<const std::pair<JinjaValue, JinjaValue>*> order;
  for (const auto& entry : call.input.dict().entries) order.push_back(&entry);
  if (call.name == "items") {
    return Pairs(call.input.dict(), SequenceKind::kGenerator, order, call.meter);
  }
  // dictsort: sorts by key and ignores case.
  RETURN_IF_ERROR(call.BindNothing());
  std::vector<std::pair<std::string, const std::pair<JinjaValue, JinjaValue>*>> keyed;
  size_t longest_bytes = 0;
  for (const auto* entry : order) {
    RETURN_IF_ERROR(call.meter.AddSteps(1));
    if (!entry->first.IsString() || !IsAscii(entry->first.bytes())) {
      return JinjaUnsupported("dictsort with keys that are not ASCII strs is not supported");
    }
    RETURN_IF_ERROR(call.meter.AddBytes(kJinjaValueBytes + 2 * entry->first.string().CostBytes()));
    ASSIGN_OR_RETURN(const JinjaString key,
                     ChangeJinjaCase(entry->first.string(), JinjaCase::kLower));
    longest_bytes = std::max(longest_bytes, key.size());
    keyed.emplace_back(key.bytes(), entry);
  }
  RETURN_IF_ERROR(call.meter.AddSort(keyed.size(), longest_bytes));
  std::stable_sort(keyed.begin(), keyed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::transform(keyed.begin(), keyed.end(), order.begin(),
                 [](const auto& entry) { return entry.second; });
  return Pairs(call.input.dict(), SequenceKind::kList, order, call.meter);
}

Result Replace(const FilterCall& call) {
  ASSIGN_OR_RETURN(const Bound bound, call.Bind({"old", "new", "count"}, 2));
  ASSIGN_OR_RETURN(const JinjaString text, JinjaToString(call.input, call.meter));
  ASSIGN_OR_RETURN(const JinjaString old, JinjaToString(*bound[0], call.meter));
  ASSIGN_OR_RETURN(const JinjaString replacement, JinjaToString(*bound[1], call.meter));
  const bool limited = bound[2].has_value() && !bound[2]->IsNone();
  ASSIGN_OR_RETURN(const int64_t count,
                   JinjaIntArgument("replace", limited ? bound[2] : std::nullopt, -1));
  ASSIGN_OR_RETURN(JinjaString result, ReplaceJinja(text, old, replacement, count, call.meter));
  return NewString(std::move(result), call.meter);
}

// select, reject, selectattr, rejectattr: [attribute,] [test, arguments…].
Result Select(const FilterCall& call) {
  std::vector<JinjaValue> positional = call.arguments.positional;
  std::optional<JinjaValue> attribute;
  if (call.name.ends_with("attr")) {
    if (positional.empty()) return JinjaError(call.name, " needs an attribute");
    attribute = positional.front();
    positional.erase(positional.begin());
  }
  std::string test;
  if (!positional.empty()) {
    ASSIGN_OR_RETURN(const JinjaString name,
                     JinjaStringArgument(call.name, positional.front(), call.meter));
    test = name.bytes();
    if (!HasJinjaTest(test)) return JinjaUnsupported("test '", test, "' is not supported");
    positional.erase(positional.begin());
  }
  const JinjaArguments arguments{std::move(positional), call.arguments.named};
  const bool wanted = call.name.starts_with("select");
  ASSIGN_OR_RETURN(const JinjaValue::SequencePtr items, JinjaItems(call.input, call.meter));
  std::vector<JinjaValue> chosen;
  for (const JinjaValue& item : items->items) {
    JinjaValue subject = item;
    if (attribute.has_value()) {
      ASSIGN_OR_RETURN(subject, Dig(item, *attribute, call.meter));
    }
    bool passes = subject.Truthy();
    if (!test.empty()) {
      ASSIGN_OR_RETURN(passes, ApplyJinjaTest(test, subject, arguments, call.meter));
    }
    if (passes == wanted) chosen.push_back(item);
  }
  return NewSequence(SequenceKind::kGenerator, std::move(chosen), call.meter);
}

// map(attribute=…, default=…) or map('filter', arguments…).
Result Map(const FilterCall& call) {
  JinjaArguments arguments = call.arguments;
  std::optional<JinjaValue> attribute;
  JinjaValue otherwise;
  std::string filter;
  if (arguments.positional.empty()) {
    static constexpr std::string_view kParameters[] = {"attribute", "default"};
    ASSIGN_OR_RETURN(const Bound bound,
                     BindJinjaArguments("map", arguments, kParameters, 1, call.meter));
    attribute = bound[0];
    otherwise = bound[1].value_or(JinjaValue());
  } else {
    ASSIGN_OR_RETURN(const JinjaString name,
                     JinjaStringArgument("map", arguments.positional.front(), call.meter));
    filter = name.bytes();
    if (!HasJinjaFilter(filter)) return JinjaUnsupported("filter '", filter, "' is not supported");
    if (filter == "map") return JinjaUnsupported("map of map is not supported");
    arguments.positional.erase(arguments.positional.begin());
  }
  ASSIGN_OR_RETURN(const JinjaValue::SequencePtr items, JinjaItems(call.input, call.meter));
  std::vector<JinjaValue> results;
  for (const JinjaValue& item : items->items) {
    Result mapped = attribute.has_value() ? Dig(item, *attribute, call.meter)
                                          : ApplyJinjaFilter(filter, item, arguments, call.meter);
    RETURN_IF_ERROR(mapped.status());
    results.push_back(mapped->IsUndefined() && attribute.has_value() ? otherwise
                                                                     : *std::move(mapped));
  }
  return NewSequence(SequenceKind::kGenerator, std::move(results), call.meter);
}

Result Reverse(const FilterCall& call) {
  RETURN_IF_ERROR(call.BindNothing());
  if (call.input.IsString()) {
    const JinjaValue backwards = JinjaValue::Int(-1);
    return JinjaSlice(call.input, std::nullopt, std::nullopt, backwards, call.meter);
  }
  ASSIGN_OR_RETURN(const JinjaValue::SequencePtr items, JinjaItems(call.input, call.meter));
  return NewSequence(SequenceKind::kGenerator, {items->items.rbegin(), items->items.rend()},
                     call.meter);
}

Result Absolute(const FilterCall& call) {
  RETURN_IF_ERROR(call.BindNothing());
  if (!call.input.IsNumber()) return JinjaError("abs needs a number");
  if (call.input.AsDouble() < 0) return JinjaNegate(call.input);
  return call.input.Is(Type::kBool) ? JinjaValue::Int(call.input.AsInt()) : call.input;
}

Result Safe(const FilterCall& call) {
  RETURN_IF_ERROR(call.BindNothing());
  return String(call);
}

using Filter = Result (*)(const FilterCall&);
constexpr std::array<std::pair<std::string_view, Filter>, 28> kFilters = {
    {{"trim", Trim},       {"upper", Case},      {"lower", Case},        {"title", Case},
     {"capitalize", Case}, {"length", Length},   {"count", Length},      {"default", Default},
     {"d", Default},       {"join", Join},       {"first", FirstOrLast}, {"last", FirstOrLast},
     {"tojson", ToJson},   {"string", String},   {"int", Number},        {"float", Number},
     {"list", List},       {"items", Items},     {"dictsort", Items},    {"replace", Replace},
     {"select", Select},   {"reject", Select},   {"selectattr", Select}, {"rejectattr", Select},
     {"map", Map},         {"reverse", Reverse}, {"abs", Absolute},      {"safe", Safe}}};

Filter FindFilter(std::string_view name) {
  for (const auto& [filter, function] : kFilters) {
    if (filter == name) return function;
  }
  return nullptr;
}

}  // namespace

bool HasJinjaFilter(std::string_view name) { return FindFilter(name) != nullptr; }

absl::StatusOr<JinjaValue> ApplyJinjaFilter(std::string_view name, const JinjaValue& input,
                                            const JinjaArguments& arguments, JinjaMeter& meter) {
  // A filter may copy its arguments, and `map` applies one to every item.
  RETURN_IF_ERROR(meter.AddSteps(
      static_cast<int64_t>(1 + arguments.positional.size() + arguments.named.size())));
  return FindFilter(name)({name, input, arguments, meter});
}

}  // namespace baton
