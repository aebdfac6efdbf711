#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

std::string Refusal(const std::string& expression) {
  const absl::StatusOr<JinjaBlock> body = ParseJinja("{{ " + expression + " }}", {});
  if (!body.ok()) return std::string(body.status().message());
  return std::string(JinjaEvaluator(*body, {}, {}).Render().status().message());
}

TEST(JinjaExpressions, ErrorsNameTheCause) {
  EXPECT_THAT(Refusal("'a' + 1"), HasSubstr("'+' does not work on str and int"));
  EXPECT_THAT(Refusal("1 < 'a'"), HasSubstr("cannot order int and str"));
  EXPECT_THAT(Refusal("{[1]: 2}"), HasSubstr("a list as key of a dict"));
  EXPECT_THAT(Refusal("'a'()"), HasSubstr("a str cannot be called"));
  EXPECT_THAT(Refusal("[].role.name"), HasSubstr("'list object' has no attribute 'role'"));
  EXPECT_THAT(Refusal("('a' if false) + 'b'"), HasSubstr("the inline if has no else"));
  EXPECT_THAT(Refusal("namespace(1)"), HasSubstr("namespace of a int"));
}

TEST(JinjaExpressions, ShortCircuitWhenAnOperandDecides) {
  EXPECT_EQ(Refusal("false and missing.x"), "");
  EXPECT_EQ(Refusal("true or missing.x"), "");
  EXPECT_EQ(Refusal("2 < 1 < missing.x"), "");
  EXPECT_EQ(Refusal("1 if true else missing.x"), "");
}

}  // namespace
}  // namespace baton
