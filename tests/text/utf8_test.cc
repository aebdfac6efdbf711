#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace baton {
namespace {

std::string Encode(uint32_t code_point) {
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  const auto tail = [&](int shift) {
    return static_cast<char>(0x80 | ((code_point >> shift) & 0x3F));
  };
  if (code_point < 0x800) return {static_cast<char>(0xC0 | (code_point >> 6)), tail(0)};
  if (code_point < 0x10000) {
    return {static_cast<char>(0xE0 | (code_point >> 12)), tail(6), tail(0)};
  }
  return {static_cast<char>(0xF0 | (code_point >> 18)), tail(12), tail(6), tail(0)};
}

TEST(Utf8, AcceptsEveryCodePointButSurrogatesAndNoneAboveTheLast) {
  for (uint32_t code_point = 0; code_point < 0x120000; ++code_point) {
    const std::string text = Encode(code_point);
    const bool valid = code_point < 0x110000 && (code_point < 0xD800 || code_point > 0xDFFF);
    const Utf8Step step = NextUtf8(text);
    ASSERT_EQ(step.kind == Utf8Kind::kCharacter, valid) << code_point;
    ASSERT_EQ(step.length, valid ? text.size() : 1) << code_point;
    ASSERT_EQ(ValidUtf8Prefix(text), valid ? text.size() : 0) << code_point;
  }
}

TEST(Utf8, DistinguishesIncompleteFromInvalidCharacters) {
  const std::string smile = Encode(0x1F600);
  for (size_t length = 1; length < 4; ++length) {
    const Utf8Step step = NextUtf8(smile.substr(0, length));
    EXPECT_EQ(step.kind, Utf8Kind::kIncomplete);
    EXPECT_EQ(step.length, length);
    const Utf8Step cut = NextUtf8(smile.substr(0, length) + "a");
    EXPECT_EQ(cut.kind, Utf8Kind::kInvalid);
    EXPECT_EQ(cut.length, length);
  }
  EXPECT_EQ(NextUtf8("\x80").kind, Utf8Kind::kInvalid);
  EXPECT_EQ(NextUtf8("\xC1").kind, Utf8Kind::kInvalid);
  EXPECT_EQ(NextUtf8("\xF5").kind, Utf8Kind::kInvalid);
  EXPECT_EQ(NextUtf8("\xE0\x80").kind, Utf8Kind::kInvalid);
}

// The right side is the result of Python's bytes.decode("utf-8", errors="replace"), with R for
// U+FFFD.
TEST(Utf8, ReplacesMaximalSubparts) {
  const std::pair<std::string, std::string> cases[] = {
      {"", ""},
      {"plain", "plain"},
      {"\xFF", "R"},
      {"a\xFF\xFE"
       "b",
       "aRRb"},
      {"\xE4\xBD", "R"},
      {"\xE4\xBD\xE4\xBD", "RR"},
      {"\xED\xA0\x80", "RRR"},
      {"\xF0\x80\x80", "RRR"},
      {"\xF4\x90\x80\x80", "RRRR"},
      {"\xC0\xAF", "RR"},
      {"\xF0\x9F\x98"
       "a",
       "Ra"},
      {"\xF0\x9F\x98\xF0\x9F\x98\x80", "R\xF0\x9F\x98\x80"},
      {"\xE2\x82\xAC\x80", "\xE2\x82\xACR"},
      {"12345678\xC3", "12345678R"},
      {"1234567\xC3\xA9\xC3", "1234567\xC3\xA9R"},
  };
  for (const auto& [bytes, marked] : cases) {
    std::string expected;
    for (const char c : marked)
      expected += c == 'R' ? std::string(kReplacementCharacter) : std::string(1, c);
    EXPECT_EQ(ReplaceInvalidUtf8(bytes), expected) << marked;
  }
}

TEST(Utf8, ReplacedRandomBytesAreValidAndStayAsTheyAre) {
  const unsigned seed = 11;
  std::mt19937 random(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  const std::string alphabet = "aé€😀";  // the test uses whole and broken pieces of these
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = 0; i < 20; ++i) {
      bytes +=
          random() % 4 == 0 ? static_cast<char>(random()) : alphabet[random() % alphabet.size()];
    }
    const std::string text = ReplaceInvalidUtf8(bytes);
    ASSERT_EQ(ValidUtf8Prefix(text), text.size());
    ASSERT_EQ(ReplaceInvalidUtf8(text), text);
  }
}

}  // namespace
}  // namespace baton
