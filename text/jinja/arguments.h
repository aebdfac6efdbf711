// Arguments of a call, and their binding to parameters.
//
// Thread safety: plain data; pure.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace baton {

struct JinjaArguments {
  std::vector<JinjaValue> positional;
  // Distinct names; they live in the template.
  std::vector<std::pair<std::string_view, JinjaValue>> named;
};

// One entry for each parameter, nullopt where the caller gave none. Errors name `callee` and the
// argument: too many, unknown, given twice, or one of the first `required` missing. Each parameter
// is a step, and so is each look at a parameter for a named argument.
absl::StatusOr<std::vector<std::optional<JinjaValue>>> BindJinjaArguments(
    std::string_view callee, const JinjaArguments& arguments,
    std::span<const std::string_view> parameters, size_t required, JinjaMeter& meter);

// What functions and methods ask of an argument; an absent one gives `otherwise`.
absl::StatusOr<int64_t> JinjaIntArgument(std::string_view callee,
                                         const std::optional<JinjaValue>& argument,
                                         int64_t otherwise);
// A copy, which is charged first. REQUIRES: the argument is present.
absl::StatusOr<JinjaString> JinjaStringArgument(std::string_view callee,
                                                const std::optional<JinjaValue>& argument,
                                                JinjaMeter& meter);

}  // namespace baton
