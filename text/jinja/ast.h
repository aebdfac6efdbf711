// Syntax tree of a template.
//
// Invariants: the `height` of an expression and the nesting of statements are at most
// JinjaLimits::max_nesting. Operands are not null unless the comment of a kind allows it.
// Thread safety: immutable after parsing.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace baton {

enum class JinjaOperator {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

struct JinjaExpression;
using JinjaExpressionPtr = std::unique_ptr<const JinjaExpression>;

struct JinjaExpression {
  enum class Kind {
    kConstant,    // constant
    kName,        // name
    kList,        // operands
    kTuple,       // operands
    kDict,        // operands: key, value, key, value, …
    kAttribute,   // operands: object; name
    kSubscript,   // operands: object, index
    kSlice,       // operands: object, start, stop, step; the last three may be null
    kCall,        // operands: callee, arguments…; named
    kFilter,      // name; operands: input, arguments…; named
    kTest,        // name; operands: input, arguments…; named
    kNegate,      // operands: number
    kPlus,        // operands: number
    kBinary,      // operators[0]; operands: left, right
    kConcat,      // operands
    kCompare,     // operands[0] operators[0] operands[1] operators[1] operands[2] …
    kNot,         // operands: one
    kAnd,         // operands: left, right
    kOr,          // operands: left, right
    kConditional  // operands: value, condition, other (may be null)
  };

  Kind kind = Kind::kConstant;
  int line = 0;
  int height = 1;  // of the tree below
  std::string name;
  JinjaValue constant;
  std::vector<JinjaExpressionPtr> operands;
  std::vector<std::pair<std::string, JinjaExpressionPtr>> named;
  std::vector<JinjaOperator> operators;
};

struct JinjaStatement;
using JinjaBlock = std::vector<JinjaStatement>;

struct JinjaStatement {
  enum class Kind {
    kText,      // text
    kPrint,     // expression
    kIf,        // branches in order; otherwise
    kFor,       // target, expression (the iterable), condition (may be null), body, otherwise
    kSet,       // target, expression
    kSetBlock,  // target, body
    kMacro,     // text (name), parameters, body
    kScope,     // body, run in its own variable scope ({% generation %})
    kBreak,
    kContinue
  };
  struct Branch;

  Kind kind = Kind::kText;
  int line = 0;
  std::string text;
  JinjaExpressionPtr target;  // kName, kAttribute of a kName, or kTuple of targets
  JinjaExpressionPtr expression;
  JinjaExpressionPtr condition;
  std::vector<Branch> branches;
  std::vector<std::pair<std::string, JinjaExpressionPtr>> parameters;  // default may be null
  JinjaBlock body;
  JinjaBlock otherwise;
};

struct JinjaStatement::Branch {
  JinjaExpressionPtr condition;
  JinjaBlock body;
};

}  // namespace baton
