#include "text/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Cut(std::string_view pre, std::string_view text) {
  const auto pretokenizer = PreTokenizer::Create(pre);
  EXPECT_TRUE(pretokenizer.ok()) << pretokenizer.status();
  std::vector<std::string> pieces;
  pretokenizer->Split(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

TEST(PreTokenizer, RefusesAnUnknownNameByName) {
  const auto pretokenizer = PreTokenizer::Create("tekken");
  EXPECT_EQ(pretokenizer.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(pretokenizer.status().message()), HasSubstr("\"tekken\""));
}

TEST(PreTokenizer, Gpt2KeepsASpaceWithTheWordAndTheNumberAfterIt) {
  EXPECT_THAT(Cut("gpt-2", "it's  2024 ok!? "),
              ElementsAre("it", "'s", " ", " 2024", " ok", "!?", " "));
  EXPECT_THAT(Cut("gpt-2", "IT'S"), ElementsAre("IT", "'", "S"));
  EXPECT_THAT(Cut("gpt-2", "a\n\n b"), ElementsAre("a", "\n\n", " b"));
}

TEST(PreTokenizer, SmolLmCutsEveryDigitAndNoSpaceJoinsOne) {
  EXPECT_THAT(Cut("smollm", "a  12 b"), ElementsAre("a", "  ", "1", "2", " b"));
  EXPECT_THAT(Cut("smollm", "½Ⅳ٣"), ElementsAre("½", "Ⅳ", "٣"));
  EXPECT_THAT(Cut("smollm", "a  b"), ElementsAre("a", " ", " b"));
}

TEST(PreTokenizer, Llama3TakesNumbersByThreeAndQwen2OneByOne) {
  EXPECT_THAT(Cut("llama-bpe", "12345 a"), ElementsAre("123", "45", " a"));
  EXPECT_THAT(Cut("qwen2", "123 a"), ElementsAre("1", "2", "3", " a"));
  EXPECT_THAT(Cut("llama-bpe", "We'LL (do)\r\n\n x"),
              ElementsAre("We", "'LL", " (", "do", ")\r\n\n", " x"));
  EXPECT_THAT(Cut("qwen2", "a \n \n  b"), ElementsAre("a", " \n \n", " ", " b"));
}

TEST(PreTokenizer, MongolianVowelSeparatorIsNoWhiteSpace) {
  EXPECT_THAT(Cut("gpt-2", "\u180E\u180E!"), ElementsAre("\u180E\u180E!"));
  EXPECT_THAT(Cut("gpt-2", "a\u3000b"), ElementsAre("a", "\u3000", "b"));
}

TEST(PreTokenizer, KnowsLettersAndNumbersThatAreNewerThanThePatternLibrary) {
  EXPECT_THAT(Cut("gpt-2", "a\U00011F02b"), ElementsAre("a\U00011F02b"));    // Kawi, Unicode 15
  EXPECT_THAT(Cut("gpt-2", "\U00016130-"), ElementsAre("\U00016130", "-"));  // Gurung, Unicode 16
  EXPECT_THAT(Cut("smollm", "\U00011DE0\U00011DE1"),
              ElementsAre("\U00011DE0", "\U00011DE1"));  // Tolong Siki, Unicode 17
}

TEST(PreTokenizer, ARunOfInvalidBytesIsOnePieceAndEndsTheTextBeforeIt) {
  EXPECT_THAT(Cut("gpt-2", "ab\xFF\xFE\x80 cd"), ElementsAre("ab", "\xFF\xFE\x80", " cd"));
  EXPECT_THAT(Cut("gpt-2", "a  \xFFz"), ElementsAre("a", "  ", "\xFF", "z"));
  EXPECT_THAT(Cut("gpt-2", "\xE4\xBD"), ElementsAre("\xE4\xBD"));
}

TEST(PreTokenizer, PiecesOfAnyBytesConcatenateToTheText) {
  const unsigned seed = 5;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<std::string> parts = {" ",    "\n",   "a",    "7",      "'s", "é", "你",
                                          "\xE4", "\x80", "\xFF", "\u00A0", ".",  "\r"};
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (int i = 0; i < 30; ++i) text += parts[random() % parts.size()];
    for (const char* pre : {"smollm", "gpt-2", "llama-bpe", "qwen2"}) {
      std::string joined;
      for (const std::string& piece : Cut(pre, text)) {
        ASSERT_FALSE(piece.empty());
        joined += piece;
      }
      ASSERT_EQ(joined, text);
    }
  }
}

// The runs are long enough to reveal a match limit, a stack limit or quadratic time.
TEST(PreTokenizer, TakesRunsOfMegabytes) {
  const size_t length = size_t{12} << 20;
  for (const char* pre : {"smollm", "gpt-2", "llama-bpe", "qwen2"}) {
    EXPECT_THAT(Cut(pre, std::string(length, ' ') + "a"),
                ElementsAre(std::string(length - 1, ' '), " a"));
    EXPECT_THAT(Cut(pre, std::string(length, 'a')), ElementsAre(std::string(length, 'a')));
    EXPECT_THAT(Cut(pre, std::string(length, '-')), ElementsAre(std::string(length, '-')));
  }
}

}  // namespace
}  // namespace baton
