#include "text/jinja/arguments.h"

#include <algorithm>

#include "common/status_macros.h"
#include "text/jinja/error.h"

namespace baton {

absl::StatusOr<std::vector<std::optional<JinjaValue>>> BindJinjaArguments(
    std::string_view callee, const JinjaArguments& arguments,
    std::span<const std::string_view> parameters, size_t required, JinjaMeter& meter) {
  RETURN_IF_ERROR(meter.AddSteps(static_cast<int64_t>(parameters.size())));
  std::vector<std::optional<JinjaValue>> bound(parameters.size());
  if (arguments.positional.size() > parameters.size()) {
    return JinjaError(callee, " takes at most ", parameters.size(), " arguments and got ",
                      arguments.positional.size());
  }
  std::copy(arguments.positional.begin(), arguments.positional.end(), bound.begin());
  for (const auto& [name, value] : arguments.named) {
    RETURN_IF_ERROR(meter.AddSteps(static_cast<int64_t>(parameters.size())));
    RETURN_IF_ERROR(meter.AddBytes(parameters.size() * name.size()));
    const auto parameter = std::find(parameters.begin(), parameters.end(), name);
    if (parameter == parameters.end()) {
      return JinjaError(callee, " has no argument '", name, "'");
    }
    std::optional<JinjaValue>& slot = bound[static_cast<size_t>(parameter - parameters.begin())];
    if (slot.has_value()) return JinjaError(callee, " got argument '", name, "' twice");
    slot = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!bound[i].has_value()) {
      return JinjaError(callee, " needs argument '", parameters[i], "'");
    }
  }
  return bound;
}

absl::StatusOr<int64_t> JinjaIntArgument(std::string_view callee,
                                         const std::optional<JinjaValue>& argument,
                                         int64_t otherwise) {
  if (!argument.has_value()) return otherwise;
  if (!argument->IsIntegral()) {
    return JinjaError(callee, " needs an int and got ", argument->TypeName());
  }
  return argument->AsInt();
}

absl::StatusOr<JinjaString> JinjaStringArgument(std::string_view callee,
                                                const std::optional<JinjaValue>& argument,
                                                JinjaMeter& meter) {
  if (!argument->IsString()) {
    return JinjaError(callee, " needs a str and got ", argument->TypeName());
  }
  RETURN_IF_ERROR(meter.AddBytes(argument->string().CostBytes()));
  return argument->string();
}

}  // namespace baton
