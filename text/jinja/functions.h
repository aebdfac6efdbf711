// Functions that a template may call by name: range, dict, raise_exception, strftime_now; and
// namespace, which the evaluator makes because it owns namespaces.
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
  kUnsupported,  // jinja2 has it, this engine not
  kNone
};
JinjaFunctionSupport FindJinjaFunction(std::string_view name);

// REQUIRES: FindJinjaFunction(name) is kSupported, and name is not "namespace". `now` is what
// strftime_now prints; without it that function fails. raise_exception fails with its message.
absl::StatusOr<JinjaValue> CallJinjaFunction(std::string_view name, const JinjaArguments& arguments,
                                             const std::optional<std::tm>& now, JinjaMeter& meter);

}  // namespace baton
