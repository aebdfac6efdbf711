// Reaching into values: attributes, subscripts, slices, length, and going through the items.
//
// Follows jinja2: `a.b` tries the method or field b first and then the key, `a['b']` the other way
// round; what is not there is undefined rather than an error.
// Thread safety: the meter, and the generators among the values, belong to one render.
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
// object[start:stop:step]; a bound that is nullopt or none is open.
absl::StatusOr<JinjaValue> JinjaSlice(const JinjaValue& object,
                                      const std::optional<JinjaValue>& start,
                                      const std::optional<JinjaValue>& stop,
                                      const std::optional<JinjaValue>& step, JinjaMeter& meter);
// The items that a loop over the value sees: of a str its characters, of a dict its keys. Uses up a
// generator; using one twice is an error here, where Python would silently see nothing.
absl::StatusOr<JinjaValue::SequencePtr> JinjaItems(const JinjaValue& value, JinjaMeter& meter);
absl::StatusOr<JinjaValue> JinjaLength(const JinjaValue& value, JinjaMeter& meter);
// The value under a key; null when there is none.
absl::StatusOr<const JinjaValue*> JinjaLookUp(const JinjaDict& dict, const JinjaValue& key,
                                              JinjaMeter& meter);

}  // namespace baton
