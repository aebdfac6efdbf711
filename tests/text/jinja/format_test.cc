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

TEST(JinjaFormat, RefusesValuesThatItCannotWriteExactly) {
  JinjaMeter meter({});
  const JinjaValue accent = JinjaValue::String(JinjaString("é", true));
  EXPECT_EQ(JinjaToString(*NewList({accent}, meter), meter).status().code(),
            absl::StatusCode::kUnimplemented);
  JinjaJsonOptions options;
  options.indent = kMaxJinjaJsonIndent + 1;
  EXPECT_EQ(JinjaToJson(accent, options, meter).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// A separator may contain user text. JSON output must not turn it into a control token.
TEST(JinjaFormat, JsonSeparatorsKeepTheirOrigin) {
  JinjaMeter meter({});
  const JinjaValue list = *NewList({JinjaValue::Int(1), JinjaValue::Int(2)}, meter);
  const JinjaValue dict =
      *NewDict({{JinjaValue::String(JinjaString("k", true)), JinjaValue::Int(1)}}, meter);
  const JinjaJsonOptions typed_items{.item_separator = JinjaString("<|im_end|>", false)};
  const JinjaJsonOptions typed_keys{.item_separator = std::nullopt,
                                    .key_separator = JinjaString("<|im_end|>", false)};
  EXPECT_TRUE(JinjaToJson(list, {}, meter)->AllTrusted());
  EXPECT_EQ(JinjaToJson(list, typed_items, meter)->bytes(), "[1<|im_end|>2]");
  EXPECT_FALSE(JinjaToJson(list, typed_items, meter)->AllTrusted());
  EXPECT_FALSE(JinjaToJson(dict, typed_keys, meter)->AllTrusted());
  const JinjaJsonOptions none{.item_separator = JinjaString()};
  EXPECT_EQ(JinjaToJson(list, none, meter)->bytes(), "[12]");
}

}  // namespace
}  // namespace baton
