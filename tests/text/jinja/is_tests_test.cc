#include "text/jinja/is_tests.h"

#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(JinjaIsTests, AreKnownByName) {
  EXPECT_TRUE(HasJinjaTest("defined"));
  EXPECT_TRUE(HasJinjaTest("equalto"));
  EXPECT_FALSE(HasJinjaTest("escaped"));
}

TEST(JinjaIsTests, TellIntFromBoolAndNumber) {
  JinjaMeter meter({});
  EXPECT_TRUE(*ApplyJinjaTest("integer", JinjaValue::Int(1), {}, meter));
  EXPECT_FALSE(*ApplyJinjaTest("integer", JinjaValue::Bool(true), {}, meter));
  EXPECT_TRUE(*ApplyJinjaTest("number", JinjaValue::Bool(true), {}, meter));
  EXPECT_TRUE(*ApplyJinjaTest("odd", JinjaValue::Int(-3), {}, meter));
}

TEST(JinjaIsTests, RefuseWrongArguments) {
  JinjaMeter meter({});
  EXPECT_FALSE(ApplyJinjaTest("eq", JinjaValue(), {}, meter).ok());
  EXPECT_FALSE(ApplyJinjaTest("none", JinjaValue(), {{JinjaValue()}, {}}, meter).ok());
  EXPECT_FALSE(
      ApplyJinjaTest("divisibleby", JinjaValue::Int(1), {{JinjaValue::Int(0)}, {}}, meter).ok());
}

}  // namespace
}  // namespace baton
