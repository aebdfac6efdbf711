// The part of JinjaEvaluator that evaluates expressions.
#include <utility>

#include "common/status_macros.h"
#include "text/jinja/access.h"
#include "text/jinja/error.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/functions.h"
#include "text/jinja/is_tests.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"

namespace baton {

using Kind = JinjaExpression::Kind;
using Type = JinjaValue::Type;

JinjaEvaluator::Result JinjaEvaluator::Evaluate(const JinjaExpression& node) {
  absl::Status started = meter_.AddSteps(1);
  if (started.ok() && depth_ >= meter_.limits().max_evaluation_depth) {
    started = JinjaLimitReached("evaluation is nested ", depth_ + 1, " deep; the limit is ",
                                meter_.limits().max_evaluation_depth);
  }
  if (!started.ok()) return Locate(started, node.line);
  ++depth_;
  Result result = EvaluateNode(node);
  --depth_;
  if (!result.ok()) return Locate(result.status(), node.line);
  return result;
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateNode(const JinjaExpression& node) {
  switch (node.kind) {
    case Kind::kConstant:
      return node.constant;
    case Kind::kName:
      return EvaluateName(node);
    case Kind::kList:
    case Kind::kTuple: {
      ASSIGN_OR_RETURN(std::vector<JinjaValue> items, EvaluateAll(node.operands, 0));
      return NewSequence(
          node.kind == Kind::kList ? JinjaSequence::Kind::kList : JinjaSequence::Kind::kTuple,
          std::move(items), meter_);
    }
    case Kind::kDict:
      return EvaluateDict(node);
    case Kind::kAttribute: {
      ASSIGN_OR_RETURN(const JinjaValue object, Evaluate(*node.operands[0]));
      return JinjaAttribute(object, node.name, meter_);
    }
    case Kind::kSubscript:
      return EvaluateSubscript(node);
    case Kind::kSlice:
      return EvaluateSlice(node);
    case Kind::kCall:
      return EvaluateCall(node);
    case Kind::kFilter: {
      ASSIGN_OR_RETURN(const JinjaValue input, Evaluate(*node.operands[0]));
      ASSIGN_OR_RETURN(const JinjaArguments arguments, EvaluateArguments(node));
      return ApplyJinjaFilter(node.name, input, arguments, meter_);
    }
    case Kind::kTest: {
      ASSIGN_OR_RETURN(const JinjaValue input, Evaluate(*node.operands[0]));
      ASSIGN_OR_RETURN(const JinjaArguments arguments, EvaluateArguments(node));
      ASSIGN_OR_RETURN(const bool passes, ApplyJinjaTest(node.name, input, arguments, meter_));
      return JinjaValue::Bool(passes);
    }
    case Kind::kNegate:
    case Kind::kPlus: {
      ASSIGN_OR_RETURN(const JinjaValue operand, Evaluate(*node.operands[0]));
      if (node.kind == Kind::kNegate) return JinjaNegate(operand);
      return JinjaArithmetic(JinjaOperator::kAdd, JinjaValue::Int(0), operand, meter_);
    }
    case Kind::kBinary: {
      ASSIGN_OR_RETURN(const JinjaValue left, Evaluate(*node.operands[0]));
      ASSIGN_OR_RETURN(const JinjaValue right, Evaluate(*node.operands[1]));
      return JinjaArithmetic(node.operators[0], left, right, meter_);
    }
    case Kind::kConcat:
      return EvaluateConcat(node);
    case Kind::kCompare:
      return EvaluateCompare(node);
    case Kind::kNot: {
      ASSIGN_OR_RETURN(const JinjaValue operand, Evaluate(*node.operands[0]));
      return JinjaValue::Bool(!operand.Truthy());
    }
    case Kind::kAnd:
    case Kind::kOr: {
      ASSIGN_OR_RETURN(JinjaValue left, Evaluate(*node.operands[0]));
      if (left.Truthy() == (node.kind == Kind::kOr)) return left;
      return Evaluate(*node.operands[1]);
    }
    case Kind::kConditional:
      return EvaluateConditional(node);
  }
  return JinjaValue();
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateName(const JinjaExpression& node) {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    RETURN_IF_ERROR(meter_.AddSteps(1));
    RETURN_IF_ERROR(meter_.AddBytes(node.name.size()));
    if (const auto found = scope->find(node.name); found != scope->end()) return found->second;
  }
  if (const auto found = input_.variables.find(node.name); found != input_.variables.end()) {
    return found->second;
  }
  switch (FindJinjaFunction(node.name)) {
    case JinjaFunctionSupport::kSupported:
      return NewFunction(node.name, meter_);
    case JinjaFunctionSupport::kUnsupported:
      return JinjaUnsupported("function '", node.name, "' is not supported");
    case JinjaFunctionSupport::kNone:
      break;
  }
  return NewUndefined(JinjaMessage("'", node.name, "' is undefined"), meter_);
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateDict(const JinjaExpression& node) {
  JinjaDict dict;
  for (size_t i = 0; i < node.operands.size(); i += 2) {
    ASSIGN_OR_RETURN(JinjaValue key, Evaluate(*node.operands[i]));
    ASSIGN_OR_RETURN(JinjaValue value, Evaluate(*node.operands[i + 1]));
    if (!key.IsString() && !key.IsNumber() && !key.IsNone()) {
      return JinjaUnsupported("a ", key.TypeName(), " as key of a dict is not supported");
    }
    ASSIGN_OR_RETURN(const JinjaValue* known, JinjaLookUp(dict, key, meter_));
    if (known == nullptr) {
      dict.entries.emplace_back(std::move(key), std::move(value));
    } else {
      for (auto& entry : dict.entries) {
        if (&entry.second == known) entry.second = value;
      }
    }
  }
  return NewDict(std::move(dict.entries), meter_);
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateSubscript(const JinjaExpression& node) {
  ASSIGN_OR_RETURN(const JinjaValue object, Evaluate(*node.operands[0]));
  ASSIGN_OR_RETURN(const JinjaValue index, Evaluate(*node.operands[1]));
  return JinjaSubscript(object, index, meter_);
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateSlice(const JinjaExpression& node) {
  ASSIGN_OR_RETURN(const JinjaValue object, Evaluate(*node.operands[0]));
  std::optional<JinjaValue> bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (node.operands[i + 1] == nullptr) continue;
    ASSIGN_OR_RETURN(bounds[i], Evaluate(*node.operands[i + 1]));
  }
  return JinjaSlice(object, bounds[0], bounds[1], bounds[2], meter_);
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateConcat(const JinjaExpression& node) {
  JinjaString result;
  for (const JinjaExpressionPtr& operand : node.operands) {
    ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*operand));
    ASSIGN_OR_RETURN(const JinjaString text, JinjaToString(value, meter_));
    result.Append(text);
  }
  return NewString(std::move(result), meter_);
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateCompare(const JinjaExpression& node) {
  ASSIGN_OR_RETURN(JinjaValue left, Evaluate(*node.operands[0]));
  for (size_t i = 0; i < node.operators.size(); ++i) {
    ASSIGN_OR_RETURN(JinjaValue right, Evaluate(*node.operands[i + 1]));
    ASSIGN_OR_RETURN(const bool holds, JinjaComparison(node.operators[i], left, right, meter_));
    if (!holds) return JinjaValue::Bool(false);
    left = std::move(right);
  }
  return JinjaValue::Bool(true);
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateConditional(const JinjaExpression& node) {
  ASSIGN_OR_RETURN(const JinjaValue condition, Evaluate(*node.operands[1]));
  if (condition.Truthy()) return Evaluate(*node.operands[0]);
  if (node.operands[2] != nullptr) return Evaluate(*node.operands[2]);
  return NewUndefined("the inline if has no else and its condition was false", meter_);
}

absl::StatusOr<std::vector<JinjaValue>> JinjaEvaluator::EvaluateAll(
    const std::vector<JinjaExpressionPtr>& nodes, size_t from) {
  std::vector<JinjaValue> values;
  values.reserve(nodes.size() - from);
  for (size_t i = from; i < nodes.size(); ++i) {
    ASSIGN_OR_RETURN(JinjaValue value, Evaluate(*nodes[i]));
    values.push_back(std::move(value));
  }
  return values;
}

absl::StatusOr<JinjaArguments> JinjaEvaluator::EvaluateArguments(const JinjaExpression& node) {
  JinjaArguments arguments;
  ASSIGN_OR_RETURN(arguments.positional, EvaluateAll(node.operands, 1));
  for (const auto& [name, expression] : node.named) {
    ASSIGN_OR_RETURN(JinjaValue value, Evaluate(*expression));
    arguments.named.emplace_back(name, std::move(value));
  }
  return arguments;
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateCall(const JinjaExpression& node) {
  ASSIGN_OR_RETURN(const JinjaValue callee, Evaluate(*node.operands[0]));
  if (callee.IsUndefined()) return JinjaError(callee.UndefinedReason());
  if (!callee.Is(Type::kCallable)) {
    return JinjaError("a ", callee.TypeName(), " cannot be called");
  }
  ASSIGN_OR_RETURN(const JinjaArguments arguments, EvaluateArguments(node));
  const JinjaCallable& callable = callee.callable();
  switch (callable.kind) {
    case JinjaCallable::Kind::kMethod:
      return CallJinjaMethod(callable.receiver, callable.name, arguments, meter_);
    case JinjaCallable::Kind::kMacro:
      return CallMacro(*callable.macro, arguments);
    case JinjaCallable::Kind::kFunction:
      break;
  }
  if (callable.name == "namespace") return MakeNamespace(arguments);
  return CallJinjaFunction(callable.name, arguments, input_.now, meter_);
}

JinjaEvaluator::Result JinjaEvaluator::CallMacro(const JinjaStatement& macro,
                                                 const JinjaArguments& arguments) {
  std::vector<std::string_view> names;
  for (const auto& [name, otherwise] : macro.parameters) names.push_back(name);
  ASSIGN_OR_RETURN(auto bound, BindJinjaArguments(macro.text, arguments, names, 0, meter_));
  // A macro sees the template's top-level variables and its own, but not its caller's.
  std::vector<Scope> callers(2);
  std::swap(callers, scopes_);
  std::swap(callers[0], scopes_[0]);
  for (size_t i = 0; i < names.size(); ++i) {
    JinjaValue value;
    if (bound[i].has_value()) {
      value = *std::move(bound[i]);
    } else if (macro.parameters[i].second != nullptr) {
      ASSIGN_OR_RETURN(value, Evaluate(*macro.parameters[i].second));
    } else {
      ASSIGN_OR_RETURN(
          value, NewUndefined(JinjaMessage("parameter '", names[i], "' was not provided"), meter_));
    }
    RETURN_IF_ERROR(SetVariable(macro.parameters[i].first, std::move(value)));
  }
  ASSIGN_OR_RETURN(JinjaString text, Capture(macro.body));
  std::swap(callers[0], scopes_[0]);
  std::swap(callers, scopes_);
  return NewString(std::move(text), meter_);
}

JinjaEvaluator::Result JinjaEvaluator::MakeNamespace(const JinjaArguments& arguments) {
  RETURN_IF_ERROR(meter_.AddBytes(sizeof(JinjaNamespace) + 64));
  auto name_space = std::make_shared<JinjaNamespace>();
  namespaces_.push_back(name_space);
  for (const JinjaValue& argument : arguments.positional) {
    if (!argument.Is(Type::kDict)) {
      return JinjaUnsupported("namespace of a ", argument.TypeName(), " is not supported");
    }
    for (const auto& [key, value] : argument.dict().entries) {
      RETURN_IF_ERROR(meter_.AddSteps(1));
      if (key.IsString()) RETURN_IF_ERROR(name_space->Set(key.bytes(), value, meter_));
    }
  }
  for (const auto& [name, value] : arguments.named) {
    RETURN_IF_ERROR(name_space->Set(name, value, meter_));
  }
  return JinjaValue::Namespace(std::move(name_space));
}

}  // namespace baton
