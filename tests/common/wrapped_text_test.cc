#include "common/wrapped_text.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(WrappedText, LinesBreakAtBlanks) {
  EXPECT_EQ(WrappedText("one two three", 7, 2), "one two\n  three");
  EXPECT_EQ(WrappedText("one two three", 6, 0), "one\ntwo\nthree");
  EXPECT_EQ(WrappedText("one two three", 13, 4), "one two three");
}

TEST(WrappedText, ALongerWordHasItsOwnLine) {
  EXPECT_EQ(WrappedText("a extraordinarily b", 5, 1), "a\n extraordinarily\n b");
}

TEST(WrappedText, SeveralBlanksAndLineBreaksBecomeOneBlank) {
  EXPECT_EQ(WrappedText("  a \n b  ", 80, 3), "a b");
  EXPECT_EQ(WrappedText("", 80, 3), "");
  EXPECT_EQ(WrappedText("  \n", 80, 3), "");
}

}  // namespace
}  // namespace baton
