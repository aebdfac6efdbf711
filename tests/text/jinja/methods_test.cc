#include "text/jinja/methods.h"

#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(JinjaMethods, TellsSupportedFromKnownAndUnknown) {
  JinjaMeter meter({});
  const JinjaValue text = JinjaValue::String(JinjaString("a", true));
  EXPECT_EQ(FindJinjaMethod(text, "strip"), JinjaMethodSupport::kSupported);
  EXPECT_EQ(FindJinjaMethod(text, "encode"), JinjaMethodSupport::kUnsupported);
  EXPECT_EQ(FindJinjaMethod(text, "role"), JinjaMethodSupport::kNone);
  EXPECT_EQ(FindJinjaMethod(*NewList({}, meter), "append"), JinjaMethodSupport::kUnsupported);
  EXPECT_EQ(FindJinjaMethod(*NewDict({}, meter), "update"), JinjaMethodSupport::kUnsupported);
}

TEST(JinjaMethods, RefuseWrongArguments) {
  JinjaMeter meter({});
  const JinjaValue text = JinjaValue::String(JinjaString("a", true));
  const JinjaValue one = JinjaValue::Int(1);
  EXPECT_FALSE(CallJinjaMethod(text, "strip", {{one}, {}}, meter).ok());
  EXPECT_FALSE(CallJinjaMethod(text, "replace", {{text}, {}}, meter).ok());
  EXPECT_FALSE(CallJinjaMethod(text, "startswith", {{JinjaValue()}, {}}, meter).ok());
  EXPECT_FALSE(CallJinjaMethod(text, "split", {{JinjaValue::String({})}, {}}, meter).ok());
  EXPECT_FALSE(CallJinjaMethod(text, "join", {{*NewList({one}, meter)}, {}}, meter).ok());
  EXPECT_FALSE(CallJinjaMethod(text, "upper", {{one}, {}}, meter).ok());
}

TEST(JinjaMethods, ChargeForTheirTextAndTheirArguments) {
  const JinjaValue small = JinjaValue::String(JinjaString("a", true));
  const JinjaValue large = JinjaValue::String(JinjaString(std::string(1 << 16, 'b'), true));
  const JinjaLimits limits{.max_work_bytes = 1 << 16};
  for (const std::string_view name : {"strip", "split", "rsplit", "find", "count", "startswith",
                                      "endswith", "removeprefix", "removesuffix"}) {
    JinjaMeter meter(limits);
    EXPECT_EQ(CallJinjaMethod(small, name, {{large}, {}}, meter).status().code(),
              absl::StatusCode::kResourceExhausted)
        << name;
  }
  JinjaMeter meter(limits);
  EXPECT_EQ(CallJinjaMethod(small, "replace", {{large, small}, {}}, meter).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(JinjaMethods, StrippingManyCharactersTakesLinearWork) {
  std::string text, characters;
  for (int i = 0; i < 1 << 18; ++i) text += "é", characters += "è";
  characters += "é";
  JinjaMeter meter({.max_work_bytes = size_t{16} << 20});
  const auto stripped =
      CallJinjaMethod(JinjaValue::String(JinjaString(text, false)), "strip",
                      {{JinjaValue::String(JinjaString(characters, true))}, {}}, meter);
  ASSERT_TRUE(stripped.ok()) << stripped.status();
  EXPECT_EQ(stripped->bytes(), "");
}

}  // namespace
}  // namespace baton
