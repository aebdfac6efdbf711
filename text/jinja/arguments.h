// Arguments of a call, and their binding to parameters.
//
// Thread safety: plain data; pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "text/jinja/value.h"

namespace baton {

struct JinjaArguments {
  std::vector<JinjaValue> positional;
  std::vector<std::pair<std::string, JinjaValue>> named;  // distinct names
};

// One entry for each parameter, nullopt where the caller gave none. Errors name `callee` and the
// argument: too many, unknown, given twice, or one of the first `required` missing.
absl::StatusOr<std::vector<std::optional<JinjaValue>>> BindJinjaArguments(
    std::string_view callee, const JinjaArguments& arguments,
    std::span<const std::string_view> parameters, size_t required);

// What functions and methods ask of an argument; an absent one gives `otherwise`.
absl::StatusOr<int64_t> JinjaIntArgument(std::string_view callee,
                                         const std::optional<JinjaValue>& argument,
                                         int64_t otherwise);
// A copy, which is charged first. REQUIRES: the argument is present.
absl::StatusOr<JinjaString> JinjaStringArgument(std::string_view callee,
                                                const std::optional<JinjaValue>& argument,
                                                JinjaMeter& meter);

}  // namespace baton
