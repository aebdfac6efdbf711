#include "text/jinja/lexer.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

// Returns the text tokens, joined with "|".
std::string Texts(const std::string& source) {
  const auto tokens = LexJinja(source);
  if (!tokens.ok()) return tokens.status().ToString();
  std::string texts;
  for (const JinjaToken& token : *tokens) {
    if (token.kind == JinjaToken::Kind::kText) texts += token.text + "|";
  }
  return texts;
}

TEST(JinjaLexer, DropsTheNewlineAfterABlockAndTheIndentBeforeOne) {
  EXPECT_EQ(Texts("a\n  {% if x %}\n  b\n  {# c #}\nd"), "a\n|  b\n|d|");
  EXPECT_EQ(Texts("a  {% if x %} b"), "a  | b|");
  EXPECT_EQ(Texts("  {{ x }}\nb"), "  |\nb|");
}

TEST(JinjaLexer, MinusStripsAndPlusKeeps) {
  EXPECT_EQ(Texts("a \n {%- if x -%} \n b"), "a|b|");
  EXPECT_EQ(Texts("a\n  {%+ if x +%}\nb"), "a\n  |\nb|");
}

TEST(JinjaLexer, DropsTheLastNewlineAndUnifiesOthers) {
  EXPECT_EQ(Texts("a\r\nb\rc\n"), "a\nb\nc|");
}

TEST(JinjaLexer, ABraceThatIsOpenHidesTheEndOfTheTag) {
  const auto tokens = LexJinja("{{ {'a': {'b': 1}}}}");
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(tokens->size(), 12u);
}

TEST(JinjaLexer, ReadsNumbersAndEscapes) {
  const auto tokens = LexJinja(R"({{ 1_000 2.5e-3 'a\n\x41\u00e9\'' }})");
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ((*tokens)[1].int_value, 1000);
  EXPECT_EQ((*tokens)[2].float_value, 2.5e-3);
  EXPECT_EQ((*tokens)[3].text, "a\nA\u00e9'");
}

TEST(JinjaLexer, NamesTheLineOfAnError) {
  for (const char* source :
       {"\n{{ 'a }}", "\n{# a", "\n{{ a", "\n{{ $ }}", "\n{{ ) }}", "\n{% raw %}",
        "\n{{ 99999999999999999999 }}", "\n{{ '\\ud800' }}", "\n{{ '\\"}) {
    const absl::Status status = LexJinja(source).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << source;
    EXPECT_THAT(std::string(status.message()), HasSubstr("line 2: ")) << source;
  }
}

}  // namespace
}  // namespace baton
