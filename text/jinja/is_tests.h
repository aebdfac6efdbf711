// Tests: the predicates of `value is test`.
//
// Thread safety: pure; the meter belongs to the render.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "text/jinja/arguments.h"
#include "text/jinja/value.h"

namespace baton {

bool HasJinjaTest(std::string_view name);

// REQUIRES: HasJinjaTest(name).
absl::StatusOr<bool> ApplyJinjaTest(std::string_view name, const JinjaValue& input,
                                    const JinjaArguments& arguments, JinjaMeter& meter);

}  // namespace baton
