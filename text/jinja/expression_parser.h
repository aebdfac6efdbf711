// Parses expressions of the template language, with jinja2's operator precedences.
//
// JinjaTokenCursor is the position in the list of tokens and counts nesting. The statement parser
// shares it. Errors contain "line N: ". Unimplemented names a jinja2 construct that this engine
// does not support. Thread safety: one parse belongs to one thread.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"
#include "text/jinja/limits.h"

namespace baton {

class JinjaTokenCursor {
 public:
  // REQUIRES: tokens end with kEnd.
  JinjaTokenCursor(std::vector<JinjaToken> tokens, const JinjaLimits& limits)
      : tokens_(std::move(tokens)), limits_(limits) {}

  const JinjaToken& Peek() const { return tokens_[next_]; }
  const JinjaToken& PeekSecond() const;
  JinjaToken Next();
  bool TryOperator(std::string_view op);
  bool TryName(std::string_view name);
  absl::Status ExpectOperator(std::string_view op);
  absl::StatusOr<std::string> ExpectName();
  absl::Status Expect(JinjaToken::Kind kind);
  // Returns the error "unexpected X" for the next token.
  absl::Status Unexpected() const;

  const JinjaLimits& limits() const { return limits_; }
  bool in_macro = false;

  // Counts one nesting level while it exists. status() is an error if the nesting is too deep.
  class Nesting {
   public:
    explicit Nesting(JinjaTokenCursor& cursor) : cursor_(cursor) { ++cursor_.nesting_; }
    ~Nesting() { --cursor_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    absl::Status status() const;

   private:
    JinjaTokenCursor& cursor_;
  };

 private:
  std::vector<JinjaToken> tokens_;
  size_t next_ = 0;
  int nesting_ = 0;
  JinjaLimits limits_;
};

class JinjaExpressionParser {
 public:
  explicit JinjaExpressionParser(JinjaTokenCursor& cursor) : cursor_(cursor) {}

  // Parses a whole expression, including `a if b else c`.
  absl::StatusOr<JinjaExpressionPtr> ParseExpression();
  // Parses an expression without the inline if, for places where `if` has another meaning.
  absl::StatusOr<JinjaExpressionPtr> ParseUnconditional();
  // Parses an expression, or a tuple if commas follow.
  absl::StatusOr<JinjaExpressionPtr> ParseTuple(bool with_conditional);
  // Parses the target that `for` or `set` assigns to.
  absl::StatusOr<JinjaExpressionPtr> ParseTarget(bool allow_attribute);
  // Parses `| filter | filter …` after `input`.
  absl::StatusOr<JinjaExpressionPtr> ParseFilters(JinjaExpressionPtr input);

 private:
  using Node = JinjaExpression;
  using Result = absl::StatusOr<JinjaExpressionPtr>;

  Result ParseAnd();
  Result ParseNot();
  Result ParseComparison();
  Result ParseSum();
  Result ParseConcat();
  Result ParseProduct();
  Result ParsePower();
  Result ParseUnary(bool with_filters);
  Result ParsePrimary();
  Result ParseNameOrConstant();
  Result ParseParenthesized();
  Result ParseListLiteral();
  Result ParseDictLiteral();
  Result ParsePostfix(JinjaExpressionPtr node);
  Result ParseSubscript(JinjaExpressionPtr node);
  Result ParseTest(JinjaExpressionPtr input);
  absl::Status ParseArguments(Node* call);
  // Completes a node: computes its height from its operands and checks the limit.
  Result Finish(Node node);

  JinjaTokenCursor& cursor_;
};

}  // namespace baton
