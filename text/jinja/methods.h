// Methods of str, list, tuple, dict and loop values.
//
// Methods that change their object are refused, as in Hugging Face's sandbox.
// Thread safety: pure; the meter belongs to the render.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "text/jinja/arguments.h"
#include "text/jinja/value.h"

namespace baton {

enum class JinjaMethodSupport {
  kSupported,
  kUnsupported,  // Python has it, this engine does not
  kNone          // neither has it
};
JinjaMethodSupport FindJinjaMethod(const JinjaValue& receiver, std::string_view name);

// REQUIRES: FindJinjaMethod(receiver, name) is kSupported.
absl::StatusOr<JinjaValue> CallJinjaMethod(const JinjaValue& receiver, std::string_view name,
                                           const JinjaArguments& arguments, JinjaMeter& meter);

}  // namespace baton
