#include "text/jinja/operators.h"

#include <limits>

#include "gtest/gtest.h"

namespace baton {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(JinjaOperators, IntegersThatDoNotFitAreErrors) {
  JinjaMeter meter({});
  const auto fails = [&](JinjaOperator op, int64_t left, int64_t right) {
    return !JinjaArithmetic(op, JinjaValue::Int(left), JinjaValue::Int(right), meter).ok();
  };
  EXPECT_TRUE(fails(JinjaOperator::kAdd, kMax, 1));
  EXPECT_TRUE(fails(JinjaOperator::kSubtract, kMin, 1));
  EXPECT_TRUE(fails(JinjaOperator::kMultiply, kMax, 2));
  EXPECT_TRUE(fails(JinjaOperator::kFloorDivide, kMin, -1));
  EXPECT_TRUE(fails(JinjaOperator::kModulo, kMin, -1));
  EXPECT_TRUE(fails(JinjaOperator::kModulo, 1, 0));
  EXPECT_TRUE(fails(JinjaOperator::kPower, 10, 19));
  EXPECT_FALSE(fails(JinjaOperator::kPower, 10, 18));
  EXPECT_FALSE(JinjaNegate(JinjaValue::Int(kMin)).ok());
}

TEST(JinjaOperators, FloorsAsPython) {
  JinjaMeter meter({});
  for (const int64_t left : {-7, 7}) {
    for (const int64_t right : {-2, 2}) {
      const int64_t quotient = JinjaArithmetic(JinjaOperator::kFloorDivide, JinjaValue::Int(left),
                                               JinjaValue::Int(right), meter)
                                   ->AsInt();
      const int64_t rest = JinjaArithmetic(JinjaOperator::kModulo, JinjaValue::Int(left),
                                           JinjaValue::Int(right), meter)
                               ->AsInt();
      EXPECT_EQ(quotient * right + rest, left);
      EXPECT_EQ(rest < 0, right < 0);
    }
  }
}

}  // namespace
}  // namespace baton
