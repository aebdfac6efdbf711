// Runs a parsed template over variables.
//
// A render's state: scopes of variables, the output, the meter. Variables set inside a for loop, a
// macro or a generation block end with it, as in jinja2; namespaces carry values out.
// evaluator.cc runs statements, expressions.cc evaluates expressions.
// Thread safety: one evaluator, one thread; the template may be shared.
#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "text/jinja/arguments.h"
#include "text/jinja/ast.h"
#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace baton {

struct JinjaInput {
  std::map<std::string, JinjaValue, std::less<>> variables;
  std::optional<std::tm> now;  // for strftime_now, which fails without it
};

class JinjaEvaluator {
 public:
  // `body` outlives the evaluator.
  JinjaEvaluator(const JinjaBlock& body, const JinjaLimits& limits, JinjaInput input);
  ~JinjaEvaluator();
  JinjaEvaluator(const JinjaEvaluator&) = delete;
  JinjaEvaluator& operator=(const JinjaEvaluator&) = delete;

  // Call once. Errors start with "line N: ": InvalidArgument where the template fails on its input
  // (raise_exception among them), Unimplemented, or ResourceExhausted for a limit.
  absl::StatusOr<JinjaString> Render();

 private:
  using Scope = std::map<std::string, JinjaValue, std::less<>>;
  using Result = absl::StatusOr<JinjaValue>;
  enum class Flow { kNext, kBreak, kContinue };
  using FlowResult = absl::StatusOr<Flow>;

  // Statements.
  FlowResult RunBlock(const JinjaBlock& block);
  FlowResult Run(const JinjaStatement& statement);
  FlowResult RunIf(const JinjaStatement& statement);
  FlowResult RunFor(const JinjaStatement& statement);
  absl::StatusOr<JinjaValue::SequencePtr> ItemsOf(const JinjaStatement& statement);
  absl::Status RunScope(const JinjaStatement& statement);
  absl::StatusOr<JinjaString> Capture(const JinjaBlock& block);
  absl::Status Print(const JinjaString& text);
  absl::Status SetVariable(const std::string& name, JinjaValue value);  // of the innermost scope
  absl::Status Assign(const JinjaExpression& target, const JinjaValue& value);

  // Expressions. Evaluate counts steps and depth and puts the line on errors.
  Result Evaluate(const JinjaExpression& node);
  Result EvaluateNode(const JinjaExpression& node);
  Result EvaluateName(const JinjaExpression& node);
  Result EvaluateDict(const JinjaExpression& node);
  Result EvaluateSubscript(const JinjaExpression& node);
  Result EvaluateSlice(const JinjaExpression& node);
  Result EvaluateConcat(const JinjaExpression& node);
  Result EvaluateCompare(const JinjaExpression& node);
  Result EvaluateConditional(const JinjaExpression& node);
  Result EvaluateCall(const JinjaExpression& node);
  absl::StatusOr<std::vector<JinjaValue>> EvaluateAll(const std::vector<JinjaExpressionPtr>& nodes,
                                                      size_t from);
  absl::StatusOr<JinjaArguments> EvaluateArguments(const JinjaExpression& node);

  Result CallMacro(const JinjaStatement& macro, const JinjaArguments& arguments);
  Result MakeNamespace(const JinjaArguments& arguments);

  // Puts the line on an error that has none.
  absl::Status Locate(const absl::Status& status, int line);

  const JinjaBlock& body_;
  JinjaMeter meter_;
  JinjaInput input_;
  std::vector<Scope> scopes_;  // innermost last; a macro call sees the first and its own
  std::vector<std::shared_ptr<JinjaNamespace>> namespaces_;  // all made, to cut cycles at the end
  JinjaString* output_ = nullptr;
  int depth_ = 0;  // evaluations and blocks inside each other
  bool located_ = false;
};

}  // namespace baton
