#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "text/jinja/error.h"
#include "text/jinja/string_operations.h"

namespace baton {
namespace {

using Type = JinjaValue::Type;

absl::Status UndefinedError(const JinjaValue& value) { return JinjaError(value.UndefinedReason()); }

std::string_view Symbol(JinjaOperator op) {
  switch (op) {
    case JinjaOperator::kAdd:
      return "+";
    case JinjaOperator::kSubtract:
      return "-";
    case JinjaOperator::kMultiply:
      return "*";
    case JinjaOperator::kDivide:
      return "/";
    case JinjaOperator::kFloorDivide:
      return "//";
    case JinjaOperator::kModulo:
      return "%";
    default:
      return "**";
  }
}

double PythonModulo(double left, double right) {
  double rest = std::fmod(left, right);
  if (rest != 0 && (rest < 0) != (right < 0)) rest += right;
  return rest == 0 ? std::copysign(0.0, right) : rest;
}

absl::StatusOr<JinjaValue> FloatArithmetic(JinjaOperator op, double left, double right,
                                           bool trusted) {
  if (right == 0 && (op == JinjaOperator::kDivide || op == JinjaOperator::kFloorDivide ||
                     op == JinjaOperator::kModulo)) {
    return JinjaError("division by zero");
  }
  double result = 0;
  switch (op) {
    case JinjaOperator::kAdd:
      result = left + right;
      break;
    case JinjaOperator::kSubtract:
      result = left - right;
      break;
    case JinjaOperator::kMultiply:
      result = left * right;
      break;
    case JinjaOperator::kDivide:
      result = left / right;
      break;
    case JinjaOperator::kFloorDivide:
      result = std::floor((left - PythonModulo(left, right)) / right + 0.5);
      break;
    case JinjaOperator::kModulo:
      result = PythonModulo(left, right);
      break;
    default:
      result = std::pow(left, right);
      if (!std::isfinite(result)) return JinjaError("'**' has no finite result");
  }
  return JinjaValue::Float(result, trusted);
}

// Computes left ** right by squaring; false if it overflows. REQUIRES: right >= 0.
bool IntPower(int64_t left, int64_t right, int64_t* result) {
  *result = 1;
  while (right > 0) {
    if ((right & 1) != 0 && __builtin_mul_overflow(*result, left, result)) return false;
    right >>= 1;
    if (right > 0 && __builtin_mul_overflow(left, left, &left)) return false;
  }
  return true;
}

absl::StatusOr<JinjaValue> IntArithmetic(JinjaOperator op, int64_t left, int64_t right,
                                         bool trusted) {
  int64_t result = 0;
  bool fits = true;
  switch (op) {
    case JinjaOperator::kAdd:
      fits = !__builtin_add_overflow(left, right, &result);
      break;
    case JinjaOperator::kSubtract:
      fits = !__builtin_sub_overflow(left, right, &result);
      break;
    case JinjaOperator::kMultiply:
      fits = !__builtin_mul_overflow(left, right, &result);
      break;
    case JinjaOperator::kFloorDivide:
    case JinjaOperator::kModulo: {
      if (right == 0) return JinjaError("division by zero");
      fits = !(left == std::numeric_limits<int64_t>::min() && right == -1);
      if (!fits) break;
      const int64_t rest = left % right;
      const bool adjust = rest != 0 && (rest < 0) != (right < 0);
      result = op == JinjaOperator::kModulo ? rest + (adjust ? right : 0)
                                            : left / right - (adjust ? 1 : 0);
      break;
    }
    case JinjaOperator::kPower:
      if (right >= 0) {
        fits = IntPower(left, right, &result);
        break;
      }
      [[fallthrough]];
    default:
      return FloatArithmetic(op, static_cast<double>(left), static_cast<double>(right), trusted);
  }
  if (!fits) {
    return JinjaError("the result of ", left, " ", Symbol(op), " ", right, " does not fit 64 bits");
  }
  return JinjaValue::Int(result, trusted);
}

absl::StatusOr<JinjaValue> Repeat(const JinjaValue& value, int64_t count, JinjaMeter& meter) {
  const size_t times = count > 0 ? static_cast<size_t>(count) : 0;
  const size_t cost = value.IsString() ? value.string().CostBytes() : value.sequence().items.size();
  if (cost > 0 && times > meter.limits().max_work_bytes / cost) {
    return JinjaLimitReached("repeating ", cost, " bytes or items ", times,
                             " times exceeds the limit of ", meter.limits().max_work_bytes);
  }
  RETURN_IF_ERROR(meter.AddBytes(cost * times));
  if (value.IsString()) {
    JinjaString result;
    if (cost == 0) return NewString(result, meter);
    for (size_t i = 0; i < times; ++i) result.Append(value.string());
    return NewString(std::move(result), meter);
  }
  if (cost * times > meter.limits().max_sequence_items) {
    return JinjaLimitReached("a list would hold ", cost * times, " items; the limit is ",
                             meter.limits().max_sequence_items);
  }
  std::vector<JinjaValue> items;
  for (size_t i = 0; cost > 0 && i < times; ++i) {
    items.insert(items.end(), value.sequence().items.begin(), value.sequence().items.end());
  }
  return NewSequence(value.sequence().kind, std::move(items), meter);
}

bool IsListOrTuple(const JinjaValue& value) {
  return value.Is(Type::kSequence) && (value.sequence().kind == JinjaSequence::Kind::kList ||
                                       value.sequence().kind == JinjaSequence::Kind::kTuple);
}

absl::StatusOr<bool> SameItems(const std::vector<JinjaValue>& left,
                               const std::vector<JinjaValue>& right, JinjaMeter& meter) {
  if (left.size() != right.size()) return false;
  for (size_t i = 0; i < left.size(); ++i) {
    ASSIGN_OR_RETURN(const bool same, JinjaEquals(left[i], right[i], meter));
    if (!same) return false;
  }
  return true;
}

absl::StatusOr<bool> SameEntries(const JinjaDict& left, const JinjaDict& right, JinjaMeter& meter) {
  if (left.entries.size() != right.entries.size()) return false;
  for (const auto& [key, value] : left.entries) {
    bool found = false;
    for (const auto& [other_key, other_value] : right.entries) {
      ASSIGN_OR_RETURN(found, JinjaEquals(key, other_key, meter));
      if (!found) continue;
      ASSIGN_OR_RETURN(const bool same, JinjaEquals(value, other_value, meter));
      if (!same) return false;
      break;
    }
    if (!found) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<bool> JinjaEquals(const JinjaValue& left, const JinjaValue& right,
                                 JinjaMeter& meter) {
  RETURN_IF_ERROR(meter.AddSteps(1));
  if (left.IsIntegral() && right.IsIntegral()) return left.AsInt() == right.AsInt();
  if (left.IsNumber() && right.IsNumber()) return left.AsDouble() == right.AsDouble();
  if (left.type() != right.type()) return false;
  switch (left.type()) {
    case Type::kString:
      if (left.string().size() != right.string().size()) return false;
      RETURN_IF_ERROR(meter.AddBytes(left.string().size()));
      return left.bytes() == right.bytes();
    case Type::kSequence:
      if (left.sequence_ptr() == right.sequence_ptr()) return true;
      if (left.sequence().kind != right.sequence().kind) return false;
      if (left.sequence().kind != JinjaSequence::Kind::kRange && !IsListOrTuple(left)) return false;
      return SameItems(left.sequence().items, right.sequence().items, meter);
    case Type::kDict:
      return SameEntries(left.dict(), right.dict(), meter);
    case Type::kNamespace:
      return left.name_space() == right.name_space();
    case Type::kLoop:
      return &left.loop() == &right.loop();
    case Type::kCallable:
      return &left.callable() == &right.callable();
    default:
      return true;  // undefined, none
  }
}

absl::StatusOr<int> JinjaCompare(const JinjaValue& left, const JinjaValue& right,
                                 JinjaMeter& meter) {
  const auto sign = [](auto a, auto b) { return a < b ? -1 : a > b ? 1 : 0; };
  if (left.IsIntegral() && right.IsIntegral()) return sign(left.AsInt(), right.AsInt());
  if (left.IsNumber() && right.IsNumber()) return sign(left.AsDouble(), right.AsDouble());
  if (left.IsString() && right.IsString()) {
    RETURN_IF_ERROR(meter.AddBytes(std::min(left.string().size(), right.string().size())));
    return sign(left.bytes().compare(right.bytes()), 0);
  }
  if (left.IsUndefined()) return UndefinedError(left);
  if (right.IsUndefined()) return UndefinedError(right);
  return JinjaError("cannot order ", left.TypeName(), " and ", right.TypeName());
}

absl::StatusOr<bool> JinjaContains(const JinjaValue& container, const JinjaValue& item,
                                   JinjaMeter& meter) {
  switch (container.type()) {
    case Type::kUndefined:
      return false;
    case Type::kString: {
      if (!item.IsString()) {
        return JinjaError("'in' a str needs a str on its left and got ", item.TypeName());
      }
      ASSIGN_OR_RETURN(const size_t found, FindJinja(container.bytes(), item.bytes(), 0, meter));
      return found != std::string::npos;
    }
    case Type::kSequence:
      if (container.sequence().kind == JinjaSequence::Kind::kGenerator) {
        return JinjaUnsupported("'in' a generator is not supported");
      }
      for (const JinjaValue& candidate : container.sequence().items) {
        ASSIGN_OR_RETURN(const bool same, JinjaEquals(candidate, item, meter));
        if (same) return true;
      }
      return false;
    case Type::kDict:
      for (const auto& [key, value] : container.dict().entries) {
        ASSIGN_OR_RETURN(const bool same, JinjaEquals(key, item, meter));
        if (same) return true;
      }
      return false;
    default:
      return JinjaError("'in' does not work on ", container.TypeName());
  }
}

absl::StatusOr<JinjaValue> JinjaArithmetic(JinjaOperator op, const JinjaValue& left,
                                           const JinjaValue& right, JinjaMeter& meter) {
  if (left.IsUndefined()) return UndefinedError(left);
  if (right.IsUndefined()) return UndefinedError(right);
  const bool trusted = left.trusted_number() && right.trusted_number();
  if (left.IsIntegral() && right.IsIntegral()) {
    return IntArithmetic(op, left.AsInt(), right.AsInt(), trusted);
  }
  if (left.IsNumber() && right.IsNumber()) {
    return FloatArithmetic(op, left.AsDouble(), right.AsDouble(), trusted);
  }
  if (op == JinjaOperator::kAdd && left.IsString() && right.IsString()) {
    RETURN_IF_ERROR(meter.AddBytes(left.string().CostBytes() + right.string().CostBytes()));
    JinjaString result = left.string();
    result.Append(right.string());
    return NewString(std::move(result), meter);
  }
  if (op == JinjaOperator::kAdd && IsListOrTuple(left) && IsListOrTuple(right) &&
      left.sequence().kind == right.sequence().kind) {
    std::vector<JinjaValue> items = left.sequence().items;
    items.insert(items.end(), right.sequence().items.begin(), right.sequence().items.end());
    return NewSequence(left.sequence().kind, std::move(items), meter);
  }
  if (op == JinjaOperator::kMultiply) {
    if ((left.IsString() || IsListOrTuple(left)) && right.IsIntegral()) {
      return Repeat(left, right.AsInt(), meter);
    }
    if ((right.IsString() || IsListOrTuple(right)) && left.IsIntegral()) {
      return Repeat(right, left.AsInt(), meter);
    }
  }
  if (op == JinjaOperator::kModulo && left.IsString()) {
    return JinjaUnsupported("formatting a str with '%' is not supported");
  }
  return JinjaError("'", Symbol(op), "' does not work on ", left.TypeName(), " and ",
                    right.TypeName());
}

absl::StatusOr<bool> JinjaComparison(JinjaOperator op, const JinjaValue& left,
                                     const JinjaValue& right, JinjaMeter& meter) {
  if (op == JinjaOperator::kEqual || op == JinjaOperator::kNotEqual) {
    ASSIGN_OR_RETURN(const bool same, JinjaEquals(left, right, meter));
    return same == (op == JinjaOperator::kEqual);
  }
  if (op == JinjaOperator::kIn || op == JinjaOperator::kNotIn) {
    ASSIGN_OR_RETURN(const bool contained, JinjaContains(right, left, meter));
    return contained == (op == JinjaOperator::kIn);
  }
  ASSIGN_OR_RETURN(const int order, JinjaCompare(left, right, meter));
  switch (op) {
    case JinjaOperator::kLess:
      return order < 0;
    case JinjaOperator::kLessEqual:
      return order <= 0;
    case JinjaOperator::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

absl::StatusOr<JinjaValue> JinjaNegate(const JinjaValue& value) {
  if (value.Is(Type::kFloat))
    return JinjaValue::Float(-value.float_value(), value.trusted_number());
  if (value.IsUndefined()) return UndefinedError(value);
  if (!value.IsIntegral()) return JinjaError("'-' does not work on ", value.TypeName());
  return IntArithmetic(JinjaOperator::kSubtract, 0, value.AsInt(), value.trusted_number());
}

}  // namespace baton
