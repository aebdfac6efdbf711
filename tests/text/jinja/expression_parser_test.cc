#include "text/jinja/expression_parser.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

absl::StatusOr<JinjaExpressionPtr> Parse(const std::string& expression) {
  auto tokens = LexJinja("{{ " + expression + " }}");
  if (!tokens.ok()) return tokens.status();
  JinjaTokenCursor cursor(*std::move(tokens), {});
  cursor.Next();
  return JinjaExpressionParser(cursor).ParseExpression();
}

TEST(JinjaExpressionParser, BindsAsJinja2Does) {
  using Kind = JinjaExpression::Kind;
  EXPECT_EQ((*Parse("a or b and not c"))->kind, Kind::kOr);
  EXPECT_EQ((*Parse("not a == b"))->kind, Kind::kNot);
  EXPECT_EQ((*Parse("a ~ b + c"))->kind, Kind::kBinary);
  EXPECT_EQ((*Parse("a if b else c if d else e"))->kind, Kind::kConditional);
  EXPECT_EQ((*Parse("a is not defined"))->kind, Kind::kNot);
  EXPECT_EQ((*Parse("-a | abs"))->kind, Kind::kFilter);
}

TEST(JinjaExpressionParser, BoundsEveryWayToNest) {
  const auto repeat = [](const std::string& text) {
    std::string result;
    for (int i = 0; i < 300; ++i) result += text;
    return result;
  };
  for (const std::string& expression :
       {repeat("(") + "1" + repeat(")"), repeat("[") + repeat("]"),
        repeat("{1:") + "1" + repeat("}"), repeat("not ") + "1", repeat("-") + "1",
        "a" + repeat("+a"), "a" + repeat(".a"), "a" + repeat("[0]"), "a" + repeat("|trim"),
        "a" + repeat("()"), repeat("a(") + repeat(")")}) {
    EXPECT_EQ(Parse(expression).status().code(), absl::StatusCode::kResourceExhausted)
        << expression.substr(0, 9) << Parse(expression).status();
  }
}

}  // namespace
}  // namespace baton
