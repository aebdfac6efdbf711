#include "text/jinja/evaluator.h"

#include <utility>

#include "common/status_macros.h"
#include "text/jinja/access.h"
#include "text/jinja/error.h"
#include "text/jinja/format.h"

namespace baton {

using Kind = JinjaStatement::Kind;

JinjaEvaluator::JinjaEvaluator(const JinjaBlock& body, const JinjaLimits& limits, JinjaInput input)
    : body_(body), meter_(limits), input_(std::move(input)) {}

JinjaEvaluator::~JinjaEvaluator() {
  for (const std::shared_ptr<JinjaNamespace>& name_space : namespaces_) {
    name_space->attributes.clear();
  }
}

absl::StatusOr<JinjaString> JinjaEvaluator::Render() {
  scopes_.emplace_back();
  JinjaString output;
  output_ = &output;
  RETURN_IF_ERROR(RunBlock(body_).status());
  return output;
}

absl::Status JinjaEvaluator::Locate(const absl::Status& status, int line) {
  if (located_) return status;
  located_ = true;
  return AtLine(line, status);
}

JinjaEvaluator::FlowResult JinjaEvaluator::RunBlock(const JinjaBlock& block) {
  for (const JinjaStatement& statement : block) {
    absl::Status started = meter_.AddSteps(1);
    if (started.ok() && depth_ >= meter_.limits().max_evaluation_depth) {
      started = JinjaLimitReached("evaluation is nested ", depth_ + 1, " deep; the limit is ",
                                  meter_.limits().max_evaluation_depth);
    }
    if (!started.ok()) return Locate(started, statement.line);
    ++depth_;
    FlowResult flow = Run(statement);
    --depth_;
    if (!flow.ok()) return Locate(flow.status(), statement.line);
    if (*flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

JinjaEvaluator::FlowResult JinjaEvaluator::Run(const JinjaStatement& statement) {
  switch (statement.kind) {
    case Kind::kText:
      RETURN_IF_ERROR(Print(JinjaString(statement.text, true)));
      break;
    case Kind::kPrint: {
      ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*statement.expression));
      ASSIGN_OR_RETURN(const JinjaString text, JinjaToString(value, meter_));
      RETURN_IF_ERROR(Print(text));
      break;
    }
    case Kind::kIf:
      return RunIf(statement);
    case Kind::kFor:
      return RunFor(statement);
    case Kind::kSet: {
      ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*statement.expression));
      RETURN_IF_ERROR(Assign(*statement.target, value));
      break;
    }
    case Kind::kSetBlock: {
      scopes_.emplace_back();
      ASSIGN_OR_RETURN(JinjaString text, Capture(statement.body));
      scopes_.pop_back();
      ASSIGN_OR_RETURN(const JinjaValue value, NewString(std::move(text), meter_));
      RETURN_IF_ERROR(Assign(*statement.target, value));
      break;
    }
    case Kind::kMacro: {
      JinjaCallable macro{JinjaCallable::Kind::kMacro, statement.text, JinjaValue(), &statement, 1};
      RETURN_IF_ERROR(meter_.AddBytes(kJinjaValueBytes + statement.text.size()));
      RETURN_IF_ERROR(SetVariable(
          statement.text,
          JinjaValue::Callable(std::make_shared<const JinjaCallable>(std::move(macro)))));
      break;
    }
    case Kind::kScope:
      RETURN_IF_ERROR(RunScope(statement));
      break;
    case Kind::kBreak:
      return Flow::kBreak;
    case Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

JinjaEvaluator::FlowResult JinjaEvaluator::RunIf(const JinjaStatement& statement) {
  for (const JinjaStatement::Branch& branch : statement.branches) {
    ASSIGN_OR_RETURN(const JinjaValue condition, Evaluate(*branch.condition));
    if (condition.Truthy()) return RunBlock(branch.body);
  }
  return RunBlock(statement.otherwise);
}

absl::StatusOr<JinjaValue::SequencePtr> JinjaEvaluator::ItemsOf(const JinjaStatement& statement) {
  ASSIGN_OR_RETURN(const JinjaValue iterable, Evaluate(*statement.expression));
  ASSIGN_OR_RETURN(JinjaValue::SequencePtr items, JinjaItems(iterable, meter_));
  if (statement.condition == nullptr) return items;
  std::vector<JinjaValue> chosen;
  scopes_.emplace_back();
  for (const JinjaValue& item : items->items) {
    RETURN_IF_ERROR(Assign(*statement.target, item));
    ASSIGN_OR_RETURN(const JinjaValue wanted, Evaluate(*statement.condition));
    if (wanted.Truthy()) chosen.push_back(item);
  }
  scopes_.pop_back();
  ASSIGN_OR_RETURN(const JinjaValue list, NewList(std::move(chosen), meter_));
  return list.sequence_ptr();
}

JinjaEvaluator::FlowResult JinjaEvaluator::RunFor(const JinjaStatement& statement) {
  ASSIGN_OR_RETURN(const JinjaValue::SequencePtr items, ItemsOf(statement));
  if (items->items.empty()) {
    scopes_.emplace_back();
    FlowResult flow = RunBlock(statement.otherwise);
    scopes_.pop_back();
    return flow;
  }
  RETURN_IF_ERROR(meter_.AddBytes(kJinjaValueBytes));
  const auto loop = std::make_shared<JinjaLoop>(JinjaLoop{items, 0, items->depth + 1});
  if (loop->depth > meter_.limits().max_value_depth) {
    return JinjaLimitReached("a loop iterates over values nested ", items->depth,
                             " deep; the limit is ", meter_.limits().max_value_depth - 1);
  }
  for (; loop->index < items->items.size(); ++loop->index) {
    scopes_.emplace_back();
    RETURN_IF_ERROR(SetVariable("loop", JinjaValue::Loop(loop)));
    RETURN_IF_ERROR(Assign(*statement.target, items->items[loop->index]));
    ASSIGN_OR_RETURN(const Flow flow, RunBlock(statement.body));
    scopes_.pop_back();
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

absl::Status JinjaEvaluator::RunScope(const JinjaStatement& statement) {
  scopes_.emplace_back();
  RETURN_IF_ERROR(RunBlock(statement.body).status());
  scopes_.pop_back();
  return absl::OkStatus();
}

absl::StatusOr<JinjaString> JinjaEvaluator::Capture(const JinjaBlock& block) {
  JinjaString captured;
  JinjaString* const outer = std::exchange(output_, &captured);
  RETURN_IF_ERROR(RunBlock(block).status());
  output_ = outer;
  return captured;
}

absl::Status JinjaEvaluator::Print(const JinjaString& text) {
  if (text.size() > meter_.limits().max_output_bytes - output_->size()) {
    return JinjaLimitReached("the output exceeds the limit of ", meter_.limits().max_output_bytes,
                             " bytes");
  }
  RETURN_IF_ERROR(meter_.AddBytes(text.CostBytes()));
  output_->Append(text);
  return absl::OkStatus();
}

absl::Status JinjaEvaluator::SetVariable(const std::string& name, JinjaValue value) {
  RETURN_IF_ERROR(meter_.AddBytes(kJinjaValueBytes + name.size()));
  scopes_.back().insert_or_assign(name, std::move(value));
  return absl::OkStatus();
}

absl::Status JinjaEvaluator::Assign(const JinjaExpression& target, const JinjaValue& value) {
  RETURN_IF_ERROR(meter_.AddSteps(1));
  if (target.kind == JinjaExpression::Kind::kName) return SetVariable(target.name, value);
  if (target.kind == JinjaExpression::Kind::kAttribute) {
    ASSIGN_OR_RETURN(const JinjaValue object, Evaluate(*target.operands[0]));
    if (!object.Is(JinjaValue::Type::kNamespace)) {
      return JinjaError("cannot assign attribute '", target.name, "' of a ", object.TypeName(),
                        ", only of a namespace");
    }
    return object.name_space()->Set(target.name, value, meter_);
  }
  ASSIGN_OR_RETURN(const JinjaValue::SequencePtr items, JinjaItems(value, meter_));
  if (items->items.size() != target.operands.size()) {
    return JinjaError("cannot unpack ", items->items.size(), " items into ", target.operands.size(),
                      " names");
  }
  for (size_t i = 0; i < items->items.size(); ++i) {
    RETURN_IF_ERROR(Assign(*target.operands[i], items->items[i]));
  }
  return absl::OkStatus();
}

}  // namespace baton
