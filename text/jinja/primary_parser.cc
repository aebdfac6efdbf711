// The part of JinjaExpressionParser for the tightest-binding constructs: literals, names, and the
// attributes, subscripts and calls behind them.
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "common/status_macros.h"
#include "text/jinja/error.h"
#include "text/jinja/expression_parser.h"

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

// Returns true if a tuple without parentheses ends at `token`: the end of its tag or bracket, `in`.
bool EndsTuple(const JinjaToken& token) {
  return token.kind == TokenKind::kPrintEnd || token.kind == TokenKind::kBlockEnd ||
         token.kind == TokenKind::kEnd || token.IsOperator(")") || token.IsOperator("=") ||
         token.IsName("in");
}

}  // namespace

JinjaExpressionParser::Result JinjaExpressionParser::ParsePrimary() {
  const JinjaToken& token = cursor_.Peek();
  Node node = NewNode(Kind::kConstant, token.line);
  switch (token.kind) {
    case TokenKind::kName:
      return ParseNameOrConstant();
    case TokenKind::kInt:
      node.constant = JinjaValue::Int(cursor_.Next().int_value);
      return Finish(std::move(node));
    case TokenKind::kFloat:
      node.constant = JinjaValue::Float(cursor_.Next().float_value);
      return Finish(std::move(node));
    case TokenKind::kString: {
      std::string text;
      while (cursor_.Peek().kind == TokenKind::kString) text += cursor_.Next().text;
      node.constant = JinjaValue::String(JinjaString(text, true));
      return Finish(std::move(node));
    }
    default:
      break;
  }
  if (token.IsOperator("(")) return ParseParenthesized();
  if (token.IsOperator("[")) return ParseListLiteral();
  if (token.IsOperator("{")) return ParseDictLiteral();
  return cursor_.Unexpected();
}

JinjaExpressionParser::Result JinjaExpressionParser::ParseNameOrConstant() {
  const JinjaToken token = cursor_.Next();
  const std::string& name = token.text;
  Node node = NewNode(Kind::kConstant, token.line);
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    node.constant = JinjaValue::Bool(name == "true" || name == "True");
  } else if (name == "none" || name == "None") {
    node.constant = JinjaValue::None();
  } else if (cursor_.in_macro && (name == "varargs" || name == "kwargs" || name == "caller")) {
    return JinjaUnsupported("line ", token.line, ": '", name, "' in a macro is not supported");
  } else {
    node.kind = Kind::kName;
    node.name = name;
  }
  return Finish(std::move(node));
}

JinjaExpressionParser::Result JinjaExpressionParser::ParseParenthesized() {
  const int line = cursor_.Next().line;
  if (cursor_.TryOperator(")")) return Finish(NewNode(Kind::kTuple, line));
  ASSIGN_OR_RETURN(JinjaExpressionPtr inside, ParseTuple(true));
  RETURN_IF_ERROR(cursor_.ExpectOperator(")"));
  return inside;
}

JinjaExpressionParser::Result JinjaExpressionParser::ParseTuple(bool with_conditional) {
  Node node = NewNode(Kind::kTuple, cursor_.Peek().line);
  bool comma = false;
  do {
    if (comma && EndsTuple(cursor_.Peek())) break;
    ASSIGN_OR_RETURN(JinjaExpressionPtr item,
                     with_conditional ? ParseExpression() : ParseUnconditional());
    node.operands.push_back(std::move(item));
    comma = cursor_.TryOperator(",");
  } while (comma);
  if (node.operands.size() == 1 && !comma) return std::move(node.operands[0]);
  return Finish(std::move(node));
}

JinjaExpressionParser::Result JinjaExpressionParser::ParseListLiteral() {
  Node node = NewNode(Kind::kList, cursor_.Next().line);
  while (!cursor_.TryOperator("]")) {
    if (!node.operands.empty()) {
      RETURN_IF_ERROR(cursor_.ExpectOperator(","));
      if (cursor_.TryOperator("]")) break;
    }
    ASSIGN_OR_RETURN(JinjaExpressionPtr item, ParseExpression());
    node.operands.push_back(std::move(item));
  }
  return Finish(std::move(node));
}

JinjaExpressionParser::Result JinjaExpressionParser::ParseDictLiteral() {
  Node node = NewNode(Kind::kDict, cursor_.Next().line);
  while (!cursor_.TryOperator("}")) {
    if (!node.operands.empty()) {
      RETURN_IF_ERROR(cursor_.ExpectOperator(","));
      if (cursor_.TryOperator("}")) break;
    }
    ASSIGN_OR_RETURN(JinjaExpressionPtr key, ParseExpression());
    RETURN_IF_ERROR(cursor_.ExpectOperator(":"));
    ASSIGN_OR_RETURN(JinjaExpressionPtr value, ParseExpression());
    node.operands.push_back(std::move(key));
    node.operands.push_back(std::move(value));
  }
  return Finish(std::move(node));
}

JinjaExpressionParser::Result JinjaExpressionParser::ParsePostfix(JinjaExpressionPtr node) {
  for (;;) {
    const int line = cursor_.Peek().line;
    if (cursor_.TryOperator(".")) {
      Node access = NewNode(Kind::kAttribute, line);
      access.operands.push_back(std::move(node));
      if (cursor_.Peek().kind == TokenKind::kInt) {  // items.0
        access.kind = Kind::kSubscript;
        ASSIGN_OR_RETURN(JinjaExpressionPtr index, ParsePrimary());
        access.operands.push_back(std::move(index));
      } else {
        ASSIGN_OR_RETURN(access.name, cursor_.ExpectName());
      }
      ASSIGN_OR_RETURN(node, Finish(std::move(access)));
    } else if (cursor_.Peek().IsOperator("[")) {
      ASSIGN_OR_RETURN(node, ParseSubscript(std::move(node)));
    } else if (cursor_.TryOperator("(")) {
      Node call = NewNode(Kind::kCall, line);
      call.operands.push_back(std::move(node));
      RETURN_IF_ERROR(ParseArguments(&call));
      ASSIGN_OR_RETURN(node, Finish(std::move(call)));
    } else {
      return node;
    }
  }
}

JinjaExpressionParser::Result JinjaExpressionParser::ParseSubscript(JinjaExpressionPtr object) {
  Node node = NewNode(Kind::kSubscript, cursor_.Next().line);
  node.operands.push_back(std::move(object));
  int colons = 0;
  JinjaExpressionPtr parts[3];
  while (!cursor_.Peek().IsOperator("]")) {
    if (cursor_.Peek().IsOperator(":")) {
      if (++colons > 2) return cursor_.Unexpected();
      cursor_.Next();
      continue;
    }
    if (parts[colons] != nullptr) {
      if (!cursor_.Peek().IsOperator(",")) return cursor_.Unexpected();
      return JinjaUnsupported("line ", node.line, ": a tuple as subscript is not supported");
    }
    ASSIGN_OR_RETURN(parts[colons], ParseExpression());
  }
  cursor_.Next();
  if (colons > 0) {
    node.kind = Kind::kSlice;
    for (JinjaExpressionPtr& part : parts) node.operands.push_back(std::move(part));
  } else if (parts[0] == nullptr) {
    return JinjaError("line ", node.line, ": the subscript is empty");
  } else {
    node.operands.push_back(std::move(parts[0]));
  }
  return Finish(std::move(node));
}

absl::Status JinjaExpressionParser::ParseArguments(Node* call) {
  bool first = true;
  std::set<std::string> names;
  while (!cursor_.TryOperator(")")) {
    if (!first) {
      RETURN_IF_ERROR(cursor_.ExpectOperator(","));
      if (cursor_.TryOperator(")")) break;
    }
    first = false;
    const JinjaToken& token = cursor_.Peek();
    if (token.IsOperator("*") || token.IsOperator("**")) {
      return JinjaUnsupported("line ", token.line, ": '", token.text,
                              "' before an argument is not supported");
    }
    if (token.kind == TokenKind::kName && cursor_.PeekSecond().IsOperator("=")) {
      std::string name = cursor_.Next().text;
      cursor_.Next();
      ASSIGN_OR_RETURN(JinjaExpressionPtr value, ParseExpression());
      if (!names.insert(name).second) {
        return JinjaError("line ", call->line, ": argument '", name, "' is given twice");
      }
      call->named.emplace_back(std::move(name), std::move(value));
      continue;
    }
    if (!call->named.empty()) {
      return JinjaError("line ", token.line, ": a positional argument follows a named one");
    }
    ASSIGN_OR_RETURN(JinjaExpressionPtr value, ParseExpression());
    call->operands.push_back(std::move(value));
  }
  return absl::OkStatus();
}

JinjaExpressionParser::Result JinjaExpressionParser::ParseTarget(bool allow_attribute) {
  const JinjaTokenCursor::Nesting nesting(cursor_);
  RETURN_IF_ERROR(nesting.status());
  Node tuple = NewNode(Kind::kTuple, cursor_.Peek().line);
  bool comma = false;
  do {
    if (comma && EndsTuple(cursor_.Peek())) break;
    if (cursor_.TryOperator("(")) {
      ASSIGN_OR_RETURN(JinjaExpressionPtr inside, ParseTarget(false));
      RETURN_IF_ERROR(cursor_.ExpectOperator(")"));
      tuple.operands.push_back(std::move(inside));
    } else {
      ASSIGN_OR_RETURN(JinjaExpressionPtr name, ParseNameOrConstant());
      if (name->kind != Kind::kName) {
        return JinjaError("line ", name->line, ": cannot assign to a constant");
      }
      if (allow_attribute && cursor_.TryOperator(".")) {
        Node attribute = NewNode(Kind::kAttribute, name->line);
        ASSIGN_OR_RETURN(attribute.name, cursor_.ExpectName());
        attribute.operands.push_back(std::move(name));
        ASSIGN_OR_RETURN(name, Finish(std::move(attribute)));
      }
      tuple.operands.push_back(std::move(name));
    }
    comma = cursor_.TryOperator(",");
  } while (comma);
  if (tuple.operands.size() == 1 && !comma) return std::move(tuple.operands[0]);
  return Finish(std::move(tuple));
}

}  // namespace baton
