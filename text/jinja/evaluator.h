// Evaluator: renders a parsed template with the given variables.
//
// Holds the state of one render: variable scopes, output and meter. As in jinja2, a variable set
// inside a for loop, a macro or a generation block exists only in that block. Namespaces carry
// values out of it. evaluator.cc runs statements; expressions.cc evaluates expressions.
// Thread safety: an evaluator belongs to one thread. Evaluators may share a template.
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
  std::optional<std::tm> now;  // for strftime_now; without it, strftime_now fails
};

class JinjaEvaluator {
 public:
  // `body` must outlive the evaluator.
  JinjaEvaluator(const JinjaBlock& body, const JinjaLimits& limits, JinjaInput input);
  ~JinjaEvaluator();
  JinjaEvaluator(const JinjaEvaluator&) = delete;
  JinjaEvaluator& operator=(const JinjaEvaluator&) = delete;

  // Call once. Errors start with "line N: ":
  //   InvalidArgument    the template fails on its input, or calls raise_exception
  //   Unimplemented      the template uses a construct that is not supported
  //   ResourceExhausted  the render exceeded a limit
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
  absl::Status SetVariable(const std::string& name, JinjaValue value);  // in the innermost scope
  absl::Status Assign(const JinjaExpression& target, const JinjaValue& value);

  // Expressions. Evaluate counts steps and depth, and adds the line to errors.
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

  // Adds the line to an error that has none.
  absl::Status Locate(const absl::Status& status, int line);

  const JinjaBlock& body_;
  JinjaMeter meter_;
  JinjaInput input_;
  std::vector<Scope> scopes_;  // innermost last; a macro sees the first scope and its own
  std::vector<std::shared_ptr<JinjaNamespace>> namespaces_;  // all; emptied at the end (cycles)
  JinjaString* output_ = nullptr;
  int depth_ = 0;  // current nesting of statements and evaluations
  bool located_ = false;
};

}  // namespace baton
