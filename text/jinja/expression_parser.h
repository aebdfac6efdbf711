// Parses expressions of the template language with jinja2's precedences.
//
// JinjaTokenCursor walks the tokens and counts nesting; the statement parser shares it.
// Errors carry "line N: "; Unimplemented names a construct that jinja2 has and this engine not.
// Thread safety: one parse, one thread.
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
  // "unexpected X" at the next token.
  absl::Status Unexpected() const;

  const JinjaLimits& limits() const { return limits_; }
  bool in_macro = false;

  // Held while something nested is parsed; ok() is false past the limit.
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

  // A whole expression, with `a if b else c`.
  absl::StatusOr<JinjaExpressionPtr> ParseExpression();
  // Without the inline if, for places where `if` means something else.
  absl::StatusOr<JinjaExpressionPtr> ParseUnconditional();
  // An expression, or a tuple when commas follow.
  absl::StatusOr<JinjaExpressionPtr> ParseTuple(bool with_conditional);
  // What `for` and `set` assign to.
  absl::StatusOr<JinjaExpressionPtr> ParseTarget(bool allow_attribute);
  // `| filter | filter …` after `input`.
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
  // Closes a node: takes its height from its parts and checks it.
  Result Finish(Node node);

  JinjaTokenCursor& cursor_;
};

}  // namespace baton
