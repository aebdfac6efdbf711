#include "cli/line_reader.h"

#include <gtest/gtest.h>

#include <sstream>

namespace baton {
namespace {

TEST(LineReader, ReadsLinesAndALastOneWithoutNewline) {
  std::istringstream input("one\n\n  two");
  std::string line;
  EXPECT_EQ(ReadLine(input, 10, line), LineRead::kLine);
  EXPECT_EQ(line, "one");
  EXPECT_EQ(ReadLine(input, 10, line), LineRead::kLine);
  EXPECT_EQ(line, "");
  EXPECT_EQ(ReadLine(input, 10, line), LineRead::kLine);
  EXPECT_EQ(line, "  two");
  EXPECT_EQ(ReadLine(input, 10, line), LineRead::kEnd);
  EXPECT_EQ(ReadLine(input, 10, line), LineRead::kEnd);
}

TEST(LineReader, ALineThatEndsWithTheInputHasNoEmptyOneBehindIt) {
  std::istringstream input("one\n");
  std::string line;
  EXPECT_EQ(ReadLine(input, 10, line), LineRead::kLine);
  EXPECT_EQ(ReadLine(input, 10, line), LineRead::kEnd);
}

TEST(LineReader, ALineOfTheLimitIsReadAndALongerOneIsReadOver) {
  std::istringstream input("12345\n123456789\nnext\n123456");
  std::string line;
  EXPECT_EQ(ReadLine(input, 5, line), LineRead::kLine);
  EXPECT_EQ(ReadLine(input, 5, line), LineRead::kTooLong);
  EXPECT_EQ(line, "12345");
  EXPECT_EQ(ReadLine(input, 5, line), LineRead::kLine);
  EXPECT_EQ(line, "next");
  EXPECT_EQ(ReadLine(input, 5, line), LineRead::kTooLong);
  EXPECT_EQ(ReadLine(input, 5, line), LineRead::kEnd);
}

TEST(LineReader, BytesAreNotText) {
  const std::string bytes("\xff\0\xfe", 3);
  std::istringstream input(bytes + "\n");
  std::string line;
  EXPECT_EQ(ReadLine(input, 10, line), LineRead::kLine);
  EXPECT_EQ(line, bytes);
}

}  // namespace
}  // namespace baton
