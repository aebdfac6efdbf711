#include "text/jinja/format.h"

#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(JinjaFormat, WritesFloatsAsPython) {
  EXPECT_EQ(JinjaFloatText(1), "1.0");
  EXPECT_EQ(JinjaFloatText(0.1 + 0.2), "0.30000000000000004");
  EXPECT_EQ(JinjaFloatText(1e16), "1e+16");
  EXPECT_EQ(JinjaFloatText(1e-5), "1e-05");
  EXPECT_EQ(JinjaFloatText(-0.0), "-0.0");
}

TEST(JinjaFormat, OneUntrustedPieceMakesAListAndJsonUntrusted) {
  JinjaMeter meter({});
  const JinjaValue trusted = JinjaValue::String(JinjaString("a", true));
  const JinjaValue untrusted = JinjaValue::String(JinjaString("b", false));
  EXPECT_TRUE(JinjaToString(*NewList({trusted}, meter), meter)->AllTrusted());
  EXPECT_FALSE(JinjaToString(*NewList({trusted, untrusted}, meter), meter)->AllTrusted());
  EXPECT_FALSE(JinjaToJson(*NewDict({{untrusted, trusted}}, meter), {}, meter)->AllTrusted());
}

TEST(JinjaFormat, RefusesWhatItCannotWriteExactly) {
  JinjaMeter meter({});
  const JinjaValue accent = JinjaValue::String(JinjaString("é", true));
  EXPECT_EQ(JinjaToString(*NewList({accent}, meter), meter).status().code(),
            absl::StatusCode::kUnimplemented);
  JinjaJsonOptions options;
  options.indent = kMaxJinjaJsonIndent + 1;
  EXPECT_EQ(JinjaToJson(accent, options, meter).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace baton
