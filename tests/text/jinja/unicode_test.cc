#include "text/jinja/unicode.h"

#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(JinjaUnicode, EncodesAndDecodesEveryLength) {
  for (const uint32_t code_point :
       {0x41u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xFFFDu, 0x10000u, 0x10FFFFu}) {
    std::string text;
    ASSERT_TRUE(AppendUtf8(code_point, &text));
    const CodePoint decoded = DecodeUtf8(text, 0);
    EXPECT_EQ(decoded.value, code_point);
    EXPECT_EQ(decoded.bytes, text.size());
    EXPECT_EQ(CountCodePoints(text), 1u);
    EXPECT_EQ(PreviousCodePoint("a" + text, 1 + text.size()), 1u);
  }
}

TEST(JinjaUnicode, RefusesInvalidCharacters) {
  std::string text;
  EXPECT_FALSE(AppendUtf8(0xD800, &text));
  EXPECT_FALSE(AppendUtf8(0x110000, &text));
  EXPECT_TRUE(text.empty());
}

TEST(JinjaUnicode, KnowsPythonsWhiteSpace) {
  const std::string text =
      "\u00a0\u3000 \x1f\u0085"
      "a \u2003";
  EXPECT_EQ(text.substr(SkipUnicodeSpace(text, 0), 1), "a");
  EXPECT_EQ(text[LengthWithoutTrailingSpace(text) - 1], 'a');
  EXPECT_FALSE(IsUnicodeSpace(0x200B));
}

TEST(JinjaUnicode, FindsTheByteOfACodePoint) {
  EXPECT_EQ(CodePointOffset("aé日b", 2), 3u);
  EXPECT_EQ(CodePointOffset("aé日b", 3), 6u);
  EXPECT_EQ(CodePointOffset("ab", 9), 2u);
}

}  // namespace
}  // namespace baton
