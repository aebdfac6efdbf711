#include "http/chunk_line.h"

#include <string>
#include <string_view>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(ChunkLine, EndsWhereTheLineOrTheTrailerEnds) {
  const std::pair<std::string_view, size_t> kCases[] = {
      {"", 0},
      {"\r", 0},
      {"\r\n", 0},
      {"3", 0},
      {"3\r", 0},
      {"3\r\n", 3},
      {"3\r\nabc\r\n", 3},
      {"\r\n3\r\nabc", 5},  // the line end of the chunk before
      {"3;name=value\r\nabc", 14},
      {"03\r\nabc", 4},
      {"0\r\n", 0},  // a trailer may follow
      {"0\r\n\r", 0},
      {"0\r\n\r\n", 5},
      {"00;x\r\n\r\nGET", 8},
      {"0\r\nX: y\r\n", 0},
      {"\r\n0\r\nX: y\r\n\r\nGET", 13},
      {"xyz\r\n", 5},  // not a size: Beast says so
  };
  for (const auto& [bytes, length] : kCases) {
    EXPECT_EQ(FindChunkLine(bytes).bytes, length) << bytes;
    EXPECT_FALSE(FindChunkLine(bytes).too_long) << bytes;
  }
}

TEST(ChunkLine, IsTooLongAboveTheLimitWholeOrNot) {
  const std::string fits = "3;" + std::string(kMaxChunkLineBytes - 4, 'a');
  EXPECT_EQ(FindChunkLine(fits + "\r\n").bytes, kMaxChunkLineBytes);
  EXPECT_FALSE(FindChunkLine(fits).too_long);
  EXPECT_TRUE(FindChunkLine(fits + "a\r\n").too_long);
  EXPECT_TRUE(FindChunkLine(fits + "aaa").too_long);
  const std::string trailer = "0\r\nX: " + std::string(kMaxChunkLineBytes - 10, 'a');
  EXPECT_EQ(FindChunkLine(trailer + "\r\n\r\n").bytes, kMaxChunkLineBytes);
  EXPECT_TRUE(FindChunkLine(trailer + "a\r\n\r\n").too_long);
  // What follows the line does not count.
  EXPECT_EQ(FindChunkLine("7d0\r\n" + std::string(2000, 'a')).bytes, 5);
  EXPECT_THAT(ChunkLineProblem(), testing::HasSubstr("more than 1024 bytes"));
}

}  // namespace
}  // namespace baton
