#include "common/printable_text.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(PrintableText, PlainTextOfAnyScriptStaysAsItIs) {
  for (const char* text :
       {"", "worker-1 at 127.0.0.1:80", "Grüße, 世界 🙂", "\"quoted\" \\ 'so'"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(PrintableText, TerminalControlCharactersAreEscaped) {
  EXPECT_EQ(Printable("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(Printable("a\nb\rc\td"), "a\\x0ab\\x0dc\\x09d");
  EXPECT_EQ(Printable(std::string_view("a\0b\x7f", 4)), "a\\x00b\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b[2J"), "\\xc2\\x9b[2J") << "C1: a single character that means ESC [";
  EXPECT_EQ(Printable("a\xe2\x80\xae"
                      "b"),
            "a\\xe2\\x80\\xaeb")
      << "switches to right-to-left text";
}

TEST(PrintableText, InvalidUtf8IsEscaped) {
  EXPECT_EQ(Printable("a\xff"
                      "b"),
            "a\\xffb");
  EXPECT_EQ(Printable("\xc3"), "\\xc3") << "incomplete";
  EXPECT_EQ(Printable("\xc3("), "\\xc3(");
  EXPECT_EQ(Printable("\xc0\x9b"), "\\xc0\\x9b") << "overlong encoding of ESC";
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond Unicode";
}

TEST(PrintableText, LongTextIsTruncated) {
  EXPECT_EQ(Printable("abcdef", 4), "abcd…");
  EXPECT_EQ(Printable("abc\xc3\xbc", 4), "abc\\xc3…");
  EXPECT_EQ(Printable(std::string(5000, 'a')).size(), kMostShownBytes + std::string("…").size());
}

TEST(PrintableText, MessagesAreComparedWithoutTheirNumbers) {
  EXPECT_TRUE(SameButForNumbers("heard of 9 ms ago", "heard of 1234 ms ago"));
  EXPECT_TRUE(SameButForNumbers("", "12"));
  EXPECT_FALSE(SameButForNumbers("a 1 b", "a 1 c"));
  EXPECT_FALSE(SameButForNumbers("a1", "a1b"));
}

}  // namespace
}  // namespace baton
