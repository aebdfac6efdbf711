// Filters: the functions of `value | filter`.
//
// `safe` does nothing, because output is never HTML. `tojson` is Hugging Face's version, which does
// not escape HTML.
// Thread safety: the meter and any generators among the values belong to one render.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "text/jinja/arguments.h"
#include "text/jinja/value.h"

namespace baton {

bool HasJinjaFilter(std::string_view name);

// REQUIRES: HasJinjaFilter(name).
absl::StatusOr<JinjaValue> ApplyJinjaFilter(std::string_view name, const JinjaValue& input,
                                            const JinjaArguments& arguments, JinjaMeter& meter);

}  // namespace baton
