#include "text/jinja/functions.h"

#include "gtest/gtest.h"

namespace baton {
namespace {

JinjaValue Text(std::string_view text) { return JinjaValue::String(JinjaString(text, true)); }

TEST(JinjaFunctions, TimeComesFromTheCallerOrIsRefused) {
  JinjaMeter meter({});
  EXPECT_FALSE(CallJinjaFunction("strftime_now", {{Text("%Y")}, {}}, std::nullopt, meter).ok());
  std::tm now{};
  now.tm_year = 126;
  const auto year = CallJinjaFunction("strftime_now", {{Text("%Y%%")}, {}}, now, meter);
  ASSERT_TRUE(year.ok()) << year.status();
  EXPECT_EQ(year->bytes(), "2026%");
  for (const char* format : {"%", "%Q", "%-d"}) {
    EXPECT_EQ(CallJinjaFunction("strftime_now", {{Text(format)}, {}}, now, meter).status().code(),
              absl::StatusCode::kUnimplemented);
  }
}

TEST(JinjaFunctions, RangeStopsAtTheLimitAndAtOverflow) {
  JinjaMeter meter({});
  const JinjaValue huge = JinjaValue::Int(INT64_MAX);
  EXPECT_EQ(CallJinjaFunction("range", {{huge}, {}}, {}, meter).status().code(),
            absl::StatusCode::kResourceExhausted);
  const auto one = CallJinjaFunction("range", {{JinjaValue::Int(1), huge, huge}, {}}, {}, meter);
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->sequence().items.size(), 1u);
  EXPECT_FALSE(CallJinjaFunction("range", {{huge, huge, JinjaValue::Int(0)}, {}}, {}, meter).ok());
}

}  // namespace
}  // namespace baton
