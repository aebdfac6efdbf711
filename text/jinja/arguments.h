// Arguments of a call, and functions that bind them to parameters.
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
  // The names are distinct. Their bytes belong to the template.
  std::vector<std::pair<std::string_view, JinjaValue>> named;
};

// Returns one entry per parameter; nullopt if the call has no argument for it. It is an error if
// there are too many arguments, if an argument is unknown or given twice, or if one of the first
// `required` arguments is missing. Errors name `callee`, and the argument if one is to blame. The
// meter is charged a step for each parameter and for each comparison with a named argument.
absl::StatusOr<std::vector<std::optional<JinjaValue>>> BindJinjaArguments(
    std::string_view callee, const JinjaArguments& arguments,
    std::span<const std::string_view> parameters, size_t required, JinjaMeter& meter);

// Returns the argument as an int, or `otherwise` if it is absent.
absl::StatusOr<int64_t> JinjaIntArgument(std::string_view callee,
                                         const std::optional<JinjaValue>& argument,
                                         int64_t otherwise);
// Returns a copy of the argument, charged to the meter before it is made. REQUIRES: the argument is
// present.
absl::StatusOr<JinjaString> JinjaStringArgument(std::string_view callee,
                                                const std::optional<JinjaValue>& argument,
                                                JinjaMeter& meter);

}  // namespace baton
