// Operators on values, with Python's semantics: arithmetic, comparison, membership.
//
// Integers have 64 bits. An overflow is an error, never a wrong number.
// Thread safety: pure; the meter belongs to the render.
#pragma once

#include "absl/status/statusor.h"
#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace baton {

absl::StatusOr<bool> JinjaEquals(const JinjaValue& left, const JinjaValue& right,
                                 JinjaMeter& meter);
// Returns a value below zero, zero, or above zero. Compares numbers and strings; other types are
// errors.
absl::StatusOr<int> JinjaCompare(const JinjaValue& left, const JinjaValue& right,
                                 JinjaMeter& meter);
// `item in container`.
absl::StatusOr<bool> JinjaContains(const JinjaValue& container, const JinjaValue& item,
                                   JinjaMeter& meter);
// REQUIRES: op is an arithmetic operator.
absl::StatusOr<JinjaValue> JinjaArithmetic(JinjaOperator op, const JinjaValue& left,
                                           const JinjaValue& right, JinjaMeter& meter);
// REQUIRES: op is a comparison or a membership test.
absl::StatusOr<bool> JinjaComparison(JinjaOperator op, const JinjaValue& left,
                                     const JinjaValue& right, JinjaMeter& meter);
absl::StatusOr<JinjaValue> JinjaNegate(const JinjaValue& value);

}  // namespace baton
