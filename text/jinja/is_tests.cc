#include "text/jinja/is_tests.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "text/jinja/error.h"
#include "text/jinja/operators.h"

namespace baton {
namespace {

using Type = JinjaValue::Type;

// Tests without an argument.
constexpr std::array<std::string_view, 16> kPlainTests = {
    "defined", "undefined", "none",    "string", "mapping", "iterable", "sequence", "number",
    "integer", "float",     "boolean", "true",   "false",   "callable", "even",     "odd"};

constexpr std::array<std::pair<std::string_view, JinjaOperator>, 13> kComparisons = {
    {{"equalto", JinjaOperator::kEqual},
     {"eq", JinjaOperator::kEqual},
     {"ne", JinjaOperator::kNotEqual},
     {"lt", JinjaOperator::kLess},
     {"lessthan", JinjaOperator::kLess},
     {"le", JinjaOperator::kLessEqual},
     {"gt", JinjaOperator::kGreater},
     {"greaterthan", JinjaOperator::kGreater},
     {"ge", JinjaOperator::kGreaterEqual},
     {"in", JinjaOperator::kIn},
     {"==", JinjaOperator::kEqual},
     {"!=", JinjaOperator::kNotEqual},
     {"divisibleby", JinjaOperator::kModulo}}};

std::optional<JinjaOperator> ComparisonNamed(std::string_view name) {
  for (const auto& [test, op] : kComparisons) {
    if (test == name) return op;
  }
  return std::nullopt;
}

bool IsIterable(const JinjaValue& value) {
  return value.IsUndefined() || value.IsString() || value.Is(Type::kSequence) ||
         value.Is(Type::kDict) || value.Is(Type::kLoop);
}

bool IsSequence(const JinjaValue& value) {
  if (!value.Is(Type::kSequence)) {
    return value.IsUndefined() || value.IsString() || value.Is(Type::kDict);
  }
  return value.sequence().kind != JinjaSequence::Kind::kView &&
         value.sequence().kind != JinjaSequence::Kind::kGenerator;
}

absl::StatusOr<bool> Divides(const JinjaValue& input, const JinjaValue& divisor,
                             JinjaMeter& meter) {
  ASSIGN_OR_RETURN(const JinjaValue rest,
                   JinjaArithmetic(JinjaOperator::kModulo, input, divisor, meter));
  return JinjaEquals(rest, JinjaValue::Int(0), meter);
}

}  // namespace

bool HasJinjaTest(std::string_view name) {
  return ComparisonNamed(name).has_value() ||
         std::find(kPlainTests.begin(), kPlainTests.end(), name) != kPlainTests.end();
}

absl::StatusOr<bool> ApplyJinjaTest(std::string_view name, const JinjaValue& input,
                                    const JinjaArguments& arguments, JinjaMeter& meter) {
  RETURN_IF_ERROR(meter.AddSteps(1));
  if (const std::optional<JinjaOperator> op = ComparisonNamed(name); op.has_value()) {
    static constexpr std::string_view kParameters[] = {"other"};
    ASSIGN_OR_RETURN(const auto bound, BindJinjaArguments(name, arguments, kParameters, 1, meter));
    if (*op == JinjaOperator::kModulo) return Divides(input, *bound[0], meter);
    return JinjaComparison(*op, input, *bound[0], meter);
  }
  RETURN_IF_ERROR(BindJinjaArguments(name, arguments, {}, 0, meter).status());
  if (name == "defined") return !input.IsUndefined();
  if (name == "undefined") return input.IsUndefined();
  if (name == "none") return input.IsNone();
  if (name == "string") return input.IsString();
  if (name == "mapping") return input.Is(Type::kDict);
  if (name == "iterable") return IsIterable(input);
  if (name == "sequence") return IsSequence(input);
  if (name == "number") return input.IsNumber();
  if (name == "integer") return input.Is(Type::kInt);
  if (name == "float") return input.Is(Type::kFloat);
  if (name == "boolean") return input.Is(Type::kBool);
  if (name == "true") return input.Is(Type::kBool) && input.bool_value();
  if (name == "false") return input.Is(Type::kBool) && !input.bool_value();
  if (name == "callable") return input.Is(Type::kCallable);
  ASSIGN_OR_RETURN(const bool even, Divides(input, JinjaValue::Int(2), meter));
  return even == (name == "even");
}

}  // namespace baton
