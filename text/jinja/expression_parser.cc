#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>

#include "common/status_macros.h"
#include "text/jinja/error.h"
#include "text/jinja/filters.h"
#include "text/jinja/is_tests.h"

namespace baton {
namespace {

using Kind = JinjaExpression::Kind;
using TokenKind = JinjaToken::Kind;

JinjaExpression NewNode(Kind kind, int line) {
  JinjaExpression node;
  node.kind = kind;
  node.line = line;
  return node;
}

std::optional<JinjaOperator> ComparisonOf(const JinjaToken& token) {
  static constexpr std::array<std::pair<std::string_view, JinjaOperator>, 6> kComparisons = {
      {{"==", JinjaOperator::kEqual},
       {"!=", JinjaOperator::kNotEqual},
       {"<", JinjaOperator::kLess},
       {"<=", JinjaOperator::kLessEqual},
       {">", JinjaOperator::kGreater},
       {">=", JinjaOperator::kGreaterEqual}}};
  for (const auto& [text, op] : kComparisons) {
    if (token.IsOperator(text)) return op;
  }
  return std::nullopt;
}

std::string Describe(const JinjaToken& token) {
  switch (token.kind) {
    case TokenKind::kText:
      return "text";
    case TokenKind::kPrintBegin:
      return "'{{'";
    case TokenKind::kPrintEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kEnd:
      return "end of template";
    default:
      return JinjaMessage("'", token.text, "'");
  }
}

}  // namespace

const JinjaToken& JinjaTokenCursor::PeekSecond() const {
  return tokens_[std::min(next_ + 1, tokens_.size() - 1)];
}

JinjaToken JinjaTokenCursor::Next() {
  JinjaToken token = tokens_[next_];
  if (token.kind != TokenKind::kEnd) ++next_;
  return token;
}

bool JinjaTokenCursor::TryOperator(std::string_view op) {
  if (!Peek().IsOperator(op)) return false;
  ++next_;
  return true;
}

bool JinjaTokenCursor::TryName(std::string_view name) {
  if (!Peek().IsName(name)) return false;
  ++next_;
  return true;
}

absl::Status JinjaTokenCursor::ExpectOperator(std::string_view op) {
  if (TryOperator(op)) return absl::OkStatus();
  return JinjaError("line ", Peek().line, ": expected '", op, "' and found ", Describe(Peek()));
}

absl::StatusOr<std::string> JinjaTokenCursor::ExpectName() {
  if (Peek().kind == TokenKind::kName) return Next().text;
  return JinjaError("line ", Peek().line, ": expected a name and found ", Describe(Peek()));
}

absl::Status JinjaTokenCursor::Expect(TokenKind kind) {
  if (Peek().kind != kind) return Unexpected();
  Next();
  return absl::OkStatus();
}

absl::Status JinjaTokenCursor::Unexpected() const {
  return JinjaError("line ", Peek().line, ": unexpected ", Describe(Peek()));
}

absl::Status JinjaTokenCursor::Nesting::status() const {
  if (cursor_.nesting_ <= cursor_.limits_.max_nesting) return absl::OkStatus();
  return JinjaLimitReached("line ", cursor_.Peek().line, ": nested ", cursor_.nesting_,
                           " deep; the limit is ", cursor_.limits_.max_nesting);
}

JinjaExpressionParser::Result JinjaExpressionParser::Finish(Node node) {
  for (const JinjaExpressionPtr& operand : node.operands) {
    if (operand != nullptr) node.height = std::max(node.height, 1 + operand->height);
  }
  for (const auto& [name, value] : node.named) {
    node.height = std::max(node.height, 1 + value->height);
  }
  if (node.height > cursor_.limits().max_nesting) {
    return JinjaLimitReached("line ", node.line, ": an expression is ", node.height,
                             " levels high; the limit is ", cursor_.limits().max_nesting);
  }
  return std::make_unique<const Node>(std::move(node));
}

JinjaExpressionParser::Result JinjaExpressionParser::ParseExpression() {
  const JinjaTokenCursor::Nesting nesting(cursor_);
  RETURN_IF_ERROR(nesting.status());
  ASSIGN_OR_RETURN(JinjaExpressionPtr value, ParseUnconditional());
  while (cursor_.Peek().IsName("if")) {
    Node node = NewNode(Kind::kConditional, cursor_.Next().line);
    ASSIGN_OR_RETURN(JinjaExpressionPtr condition, ParseUnconditional());
    JinjaExpressionPtr other;
    if (cursor_.TryName("else")) {
      ASSIGN_OR_RETURN(other, ParseExpression());
    }
    node.operands.push_back(std::move(value));
    node.operands.push_back(std::move(condition));
    node.operands.push_back(std::move(other));
    ASSIGN_OR_RETURN(value, Finish(std::move(node)));
  }
  return value;
}

JinjaExpressionParser::Result JinjaExpressionParser::ParseUnconditional() {
  ASSIGN_OR_RETURN(JinjaExpressionPtr left, ParseAnd());
  while (cursor_.Peek().IsName("or")) {
    Node node = NewNode(Kind::kOr, cursor_.Next().line);
    ASSIGN_OR_RETURN(JinjaExpressionPtr right, ParseAnd());
    node.operands.push_back(std::move(left));
    node.operands.push_back(std::move(right));
    ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
  return left;
}

JinjaExpressionParser::Result JinjaExpressionParser::ParseAnd() {
  ASSIGN_OR_RETURN(JinjaExpressionPtr left, ParseNot());
  while (cursor_.Peek().IsName("and")) {
    Node node = NewNode(Kind::kAnd, cursor_.Next().line);
    ASSIGN_OR_RETURN(JinjaExpressionPtr right, ParseNot());
    node.operands.push_back(std::move(left));
    node.operands.push_back(std::move(right));
    ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
  return left;
}

JinjaExpressionParser::Result JinjaExpressionParser::ParseNot() {
  if (!cursor_.Peek().IsName("not")) return ParseComparison();
  const JinjaTokenCursor::Nesting nesting(cursor_);
  RETURN_IF_ERROR(nesting.status());
  Node node = NewNode(Kind::kNot, cursor_.Next().line);
  ASSIGN_OR_RETURN(JinjaExpressionPtr operand, ParseNot());
  node.operands.push_back(std::move(operand));
  return Finish(std::move(node));
}

JinjaExpressionParser::Result JinjaExpressionParser::ParseComparison() {
  Node node = NewNode(Kind::kCompare, cursor_.Peek().line);
  ASSIGN_OR_RETURN(JinjaExpressionPtr first, ParseSum());
  node.operands.push_back(std::move(first));
  for (;;) {
    std::optional<JinjaOperator> op = ComparisonOf(cursor_.Peek());
    if (op.has_value()) {
      cursor_.Next();
    } else if (cursor_.TryName("in")) {
      op = JinjaOperator::kIn;
    } else if (cursor_.Peek().IsName("not") && cursor_.PeekSecond().IsName("in")) {
      cursor_.Next();
      cursor_.Next();
      op = JinjaOperator::kNotIn;
    } else {
      break;
    }
    node.operators.push_back(*op);
    ASSIGN_OR_RETURN(JinjaExpressionPtr operand, ParseSum());
    node.operands.push_back(std::move(operand));
  }
  if (node.operators.empty()) return std::move(node.operands[0]);
  return Finish(std::move(node));
}

JinjaExpressionParser::Result JinjaExpressionParser::ParseSum() {
  ASSIGN_OR_RETURN(JinjaExpressionPtr left, ParseConcat());
  while (cursor_.Peek().IsOperator("+") || cursor_.Peek().IsOperator("-")) {
    const JinjaToken token = cursor_.Next();
    Node node = NewNode(Kind::kBinary, token.line);
    node.operators = {token.text == "+" ? JinjaOperator::kAdd : JinjaOperator::kSubtract};
    ASSIGN_OR_RETURN(JinjaExpressionPtr right, ParseConcat());
    node.operands.push_back(std::move(left));
    node.operands.push_back(std::move(right));
    ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
  return left;
}

JinjaExpressionParser::Result JinjaExpressionParser::ParseConcat() {
  Node node = NewNode(Kind::kConcat, cursor_.Peek().line);
  do {
    ASSIGN_OR_RETURN(JinjaExpressionPtr operand, ParseProduct());
    node.operands.push_back(std::move(operand));
  } while (cursor_.TryOperator("~"));
  if (node.operands.size() == 1) return std::move(node.operands[0]);
  return Finish(std::move(node));
}

JinjaExpressionParser::Result JinjaExpressionParser::ParseProduct() {
  static constexpr std::array<std::pair<std::string_view, JinjaOperator>, 4> kProducts = {
      {{"*", JinjaOperator::kMultiply},
       {"/", JinjaOperator::kDivide},
       {"//", JinjaOperator::kFloorDivide},
       {"%", JinjaOperator::kModulo}}};
  ASSIGN_OR_RETURN(JinjaExpressionPtr left, ParsePower());
  for (;;) {
    const auto* product = std::find_if(kProducts.begin(), kProducts.end(), [&](const auto& entry) {
      return cursor_.Peek().IsOperator(entry.first);
    });
    if (product == kProducts.end()) return left;
    Node node = NewNode(Kind::kBinary, cursor_.Next().line);
    node.operators = {product->second};
    ASSIGN_OR_RETURN(JinjaExpressionPtr right, ParsePower());
    node.operands.push_back(std::move(left));
    node.operands.push_back(std::move(right));
    ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
}

JinjaExpressionParser::Result JinjaExpressionParser::ParsePower() {
  ASSIGN_OR_RETURN(JinjaExpressionPtr left, ParseUnary(true));
  while (cursor_.Peek().IsOperator("**")) {
    Node node = NewNode(Kind::kBinary, cursor_.Next().line);
    node.operators = {JinjaOperator::kPower};
    ASSIGN_OR_RETURN(JinjaExpressionPtr right, ParseUnary(true));
    node.operands.push_back(std::move(left));
    node.operands.push_back(std::move(right));
    ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
  return left;
}

JinjaExpressionParser::Result JinjaExpressionParser::ParseUnary(bool with_filters) {
  const JinjaTokenCursor::Nesting nesting(cursor_);
  RETURN_IF_ERROR(nesting.status());
  JinjaExpressionPtr node;
  if (cursor_.Peek().IsOperator("-") || cursor_.Peek().IsOperator("+")) {
    const JinjaToken sign = cursor_.Next();
    Node unary = NewNode(sign.text == "-" ? Kind::kNegate : Kind::kPlus, sign.line);
    ASSIGN_OR_RETURN(JinjaExpressionPtr operand, ParseUnary(false));
    unary.operands.push_back(std::move(operand));
    ASSIGN_OR_RETURN(node, Finish(std::move(unary)));
  } else {
    ASSIGN_OR_RETURN(node, ParsePrimary());
  }
  ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
  if (!with_filters) return node;
  for (;;) {
    if (cursor_.Peek().IsOperator("|")) {
      ASSIGN_OR_RETURN(node, ParseFilters(std::move(node)));
    } else if (cursor_.TryName("is")) {
      ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
    } else if (cursor_.Peek().IsOperator("(")) {
      ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
    } else {
      return node;
    }
  }
}

JinjaExpressionParser::Result JinjaExpressionParser::ParseFilters(JinjaExpressionPtr input) {
  while (cursor_.TryOperator("|")) {
    Node node = NewNode(Kind::kFilter, cursor_.Peek().line);
    ASSIGN_OR_RETURN(node.name, cursor_.ExpectName());
    if (!HasJinjaFilter(node.name)) {
      return JinjaUnsupported("line ", node.line, ": filter '", node.name, "' is not supported");
    }
    node.operands.push_back(std::move(input));
    if (cursor_.TryOperator("(")) RETURN_IF_ERROR(ParseArguments(&node));
    ASSIGN_OR_RETURN(input, Finish(std::move(node)));
  }
  return input;
}

JinjaExpressionParser::Result JinjaExpressionParser::ParseTest(JinjaExpressionPtr input) {
  const bool negated = cursor_.TryName("not");
  Node node = NewNode(Kind::kTest, cursor_.Peek().line);
  ASSIGN_OR_RETURN(node.name, cursor_.ExpectName());
  if (!HasJinjaTest(node.name)) {
    return JinjaUnsupported("line ", node.line, ": test '", node.name, "' is not supported");
  }
  node.operands.push_back(std::move(input));
  const JinjaToken& next = cursor_.Peek();
  const bool ends = next.IsName("else") || next.IsName("or") || next.IsName("and");
  if (cursor_.TryOperator("(")) {
    RETURN_IF_ERROR(ParseArguments(&node));
  } else if (next.IsName("is")) {
    return JinjaError("line ", next.line, ": tests cannot be chained with 'is'");
  } else if ((next.kind == TokenKind::kName && !ends) || next.kind == TokenKind::kString ||
             next.kind == TokenKind::kInt || next.kind == TokenKind::kFloat ||
             next.IsOperator("[") || next.IsOperator("{")) {
    ASSIGN_OR_RETURN(JinjaExpressionPtr argument, ParsePrimary());
    ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    node.operands.push_back(std::move(argument));
  }
  ASSIGN_OR_RETURN(JinjaExpressionPtr test, Finish(std::move(node)));
  if (!negated) return test;
  Node negation = NewNode(Kind::kNot, test->line);
  negation.operands.push_back(std::move(test));
  return Finish(std::move(negation));
}

}  // namespace baton
