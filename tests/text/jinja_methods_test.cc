#include "text/jinja_methods.h"

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

}  // namespace
}  // namespace baton
