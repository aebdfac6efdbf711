#include "text/jinja/value.h"

#include "gtest/gtest.h"

namespace baton {
namespace {

JinjaValue Text(std::string_view text) { return JinjaValue::String(JinjaString(text, true)); }

TEST(JinjaValue, HasPythonsTruth) {
  JinjaMeter meter({});
  for (const JinjaValue& value :
       {JinjaValue(), JinjaValue::None(), JinjaValue::Bool(false), JinjaValue::Int(0),
        JinjaValue::Float(0), Text(""), *NewList({}, meter), *NewDict({}, meter)}) {
    EXPECT_FALSE(value.Truthy()) << value.TypeName();
  }
  for (const JinjaValue& value :
       {JinjaValue::Bool(true), JinjaValue::Int(-1), JinjaValue::Float(0.5), Text(" "),
        *NewList({JinjaValue()}, meter),
        *NewSequence(JinjaSequence::Kind::kGenerator, {}, meter)}) {
    EXPECT_TRUE(value.Truthy()) << value.TypeName();
  }
}

TEST(JinjaValue, MakersHoldTheLimits) {
  JinjaLimits limits;
  limits.max_value_depth = 2;
  limits.max_sequence_items = 3;
  limits.max_work_bytes = 4096;
  JinjaMeter meter(limits);
  const JinjaValue one = *NewList({}, meter);
  const JinjaValue two = *NewList({one}, meter);
  EXPECT_EQ(two.Depth(), 2);
  EXPECT_EQ(NewList({two}, meter).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(NewDict({{Text("k"), two}}, meter).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(NewMethod(two, "count", meter).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(NewList({one, one, one, one}, meter).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(NewString(JinjaString(std::string(5000, 'a'), true), meter).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace baton
