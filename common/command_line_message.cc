#include "common/command_line_message.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/nearest_name.h"
#include "common/str_cat.h"

namespace baton {
namespace {

constexpr std::string_view kPrefix = "BATON_";
constexpr size_t kShortName = 6;  // without the prefix; one wrong letter is allowed, otherwise two

// Returns what stands before and after `middle`.
std::optional<std::pair<std::string, std::string>> Split(std::string_view text,
                                                         std::string_view middle) {
  const size_t at = text.find(middle);
  if (at == std::string_view::npos) return std::nullopt;
  return std::pair(std::string(text.substr(0, at)), std::string(text.substr(at + middle.size())));
}

bool IsNear(const std::string& name, const std::string& other) {
  return EditDistance(name, other) <= (other.size() < kPrefix.size() + kShortName ? 1 : 2);
}

}  // namespace

std::string PlainMessage(std::string_view what) {
  if (const auto parts = Split(what, ": At Most 1 required but received ")) {
    return StrCat(parts->first, ": is given ", parts->second, " times; must be given once");
  }
  if (const auto parts = Split(what, " required "); parts && what.ends_with(" missing")) {
    return StrCat(parts->first.substr(0, parts->first.rfind(':')), ": needs a value");
  }
  if (const auto parts = Split(what, " excludes ")) {
    return StrCat(parts->first, " and ", parts->second, " cannot be given together");
  }
  if (const auto parts = Split(what, " requires ")) {
    return StrCat(parts->first, " needs ", parts->second);
  }
  if (const auto parts = Split(what, "Could not convert: "); parts && parts->first.empty()) {
    if (const auto value = Split(parts->second, " = ")) {
      return StrCat(value->first, ": is ", value->second, ", which is not a value for it");
    }
  }
  return std::string(what);
}

std::vector<std::string> WarningsOfVariables(const Variables& variables) {
  std::vector<std::string> warnings;
  const auto has = [](std::span<const std::string> names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  for (const std::string& name : variables.names) {
    if (!name.starts_with(kPrefix) || has(variables.known, name)) continue;
    const std::string begin = StrCat("warning: the environment variable ", name, " has no effect");
    if (has(variables.options, name)) {
      warnings.push_back(StrCat(begin, "; give the option instead"));
      continue;
    }
    const auto near = std::ranges::find_if(
        variables.read, [&](const std::string& other) { return IsNear(name, other); });
    if (near == variables.read.end()) continue;
    warnings.push_back(StrCat(begin, "; did you mean ", *near, "?"));
  }
  return warnings;
}

}  // namespace baton
