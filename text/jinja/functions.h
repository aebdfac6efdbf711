// Functions that a template may call by name: range, dict, raise_exception and strftime_now. There
// is also `namespace`, which the evaluator implements because it owns all namespaces.
//
// Thread safety: pure; the meter belongs to the render.
#pragma once

#include <ctime>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/jinja/arguments.h"
#include "text/jinja/value.h"

namespace baton {

enum class JinjaFunctionSupport {
  kSupported,
  kUnsupported,  // jinja2 has it, this engine does not
  kNone          // jinja2 does not have it either
};
JinjaFunctionSupport FindJinjaFunction(std::string_view name);

// Calls a function. strftime_now prints `now` and fails if it is absent. raise_exception always
// fails, with its message. REQUIRES: FindJinjaFunction(name) is kSupported; name is not
// "namespace".
absl::StatusOr<JinjaValue> CallJinjaFunction(std::string_view name, const JinjaArguments& arguments,
                                             const std::optional<std::tm>& now, JinjaMeter& meter);

}  // namespace baton
