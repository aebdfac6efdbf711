// Access to parts of values: attributes, subscripts, slices, items and lengths.
//
// Follows jinja2. `a.b` first tries the method or field b, then the key; `a['b']` first tries the
// key. A missing part gives an undefined value, not an error.
// Thread safety: the meter and any generators among the values belong to one render.
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/jinja/value.h"

namespace baton {

absl::StatusOr<JinjaValue> JinjaAttribute(const JinjaValue& object, std::string_view name,
                                          JinjaMeter& meter);
absl::StatusOr<JinjaValue> JinjaSubscript(const JinjaValue& object, const JinjaValue& index,
                                          JinjaMeter& meter);
// Returns object[start:stop:step]. A bound that is nullopt or none is open.
absl::StatusOr<JinjaValue> JinjaSlice(const JinjaValue& object,
                                      const std::optional<JinjaValue>& start,
                                      const std::optional<JinjaValue>& stop,
                                      const std::optional<JinjaValue>& step, JinjaMeter& meter);
// Returns the items that a loop over `value` sees: the characters of a str, the keys of a dict.
// Consumes a generator. Using a generator twice is an error here; Python silently returns nothing.
absl::StatusOr<JinjaValue::SequencePtr> JinjaItems(const JinjaValue& value, JinjaMeter& meter);
absl::StatusOr<JinjaValue> JinjaLength(const JinjaValue& value, JinjaMeter& meter);
// Returns the value of `key`, or null if `dict` has no such key.
absl::StatusOr<const JinjaValue*> JinjaLookUp(const JinjaDict& dict, const JinjaValue& key,
                                              JinjaMeter& meter);

}  // namespace baton
