#include "cli/input_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "tests/cli/text_file.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns its text and then fails, as a damaged disk does.
struct DamagedText {
  std::string left;

  static ssize_t Read(void* self, char* buffer, size_t size) {
    std::string& left = static_cast<DamagedText*>(self)->left;
    if (left.empty()) {
      errno = EIO;
      return -1;
    }
    const size_t count = std::min(size, left.size());
    std::memcpy(buffer, left.data(), count);
    left.erase(0, count);
    return static_cast<ssize_t>(count);
  }

  InputFile Open() {
    return {fopencookie(this, "r",
                        {.read = &Read, .write = nullptr, .seek = nullptr, .close = nullptr}),
            "disk"};
  }
};

TEST(InputFile, ReadsLinesAndALastOneWithoutNewline) {
  InputFile input = TextFile("one\n\n  two");
  std::string line;
  EXPECT_EQ(input.ReadLine(10, line), LineRead::kLine);
  EXPECT_EQ(line, "one");
  EXPECT_EQ(input.ReadLine(10, line), LineRead::kLine);
  EXPECT_EQ(line, "");
  EXPECT_EQ(input.ReadLine(10, line), LineRead::kLine);
  EXPECT_EQ(line, "  two");
  EXPECT_EQ(input.ReadLine(10, line), LineRead::kEnd);
  EXPECT_EQ(input.ReadLine(10, line), LineRead::kEnd);
  EXPECT_TRUE(input.status().ok());
}

TEST(InputFile, ALineThatEndsWithTheInputIsFollowedByNoEmptyLine) {
  InputFile input = TextFile("one\n");
  std::string line;
  EXPECT_EQ(input.ReadLine(10, line), LineRead::kLine);
  EXPECT_EQ(input.ReadLine(10, line), LineRead::kEnd);
}

TEST(InputFile, ReadsALineOfTheLimitAndSkipsALongerOne) {
  InputFile input = TextFile("12345\n123456789\nnext\n123456");
  std::string line;
  EXPECT_EQ(input.ReadLine(5, line), LineRead::kLine);
  EXPECT_EQ(input.ReadLine(5, line), LineRead::kTooLong);
  EXPECT_EQ(line, "12345");
  EXPECT_EQ(input.ReadLine(5, line), LineRead::kLine);
  EXPECT_EQ(line, "next");
  EXPECT_EQ(input.ReadLine(5, line), LineRead::kTooLong);
  EXPECT_EQ(input.ReadLine(5, line), LineRead::kEnd);
}

TEST(InputFile, BytesAreNotText) {
  const std::string bytes("\xff\0\xfe", 3);
  InputFile input = TextFile(bytes + "\n");
  std::string line;
  EXPECT_EQ(input.ReadLine(10, line), LineRead::kLine);
  EXPECT_EQ(line, bytes);
}

TEST(InputFile, DistinguishesTheEndOfALineAndOfTheInput) {
  InputFile input = TextFile("one\ntoo long\ntwo");
  std::string line;
  EXPECT_EQ(input.ReadLine(3, line), LineRead::kLine);
  EXPECT_TRUE(input.line_ended());
  EXPECT_EQ(input.bytes_read(), 4);
  EXPECT_EQ(input.ReadLine(3, line), LineRead::kTooLong);
  EXPECT_EQ(input.bytes_read(), 13);
  EXPECT_EQ(input.ReadLine(3, line), LineRead::kLine);
  EXPECT_FALSE(input.line_ended());
}

TEST(InputFile, AFileCanBeReadAgainAndAPipeCannot) {
  InputFile input = TextFile("one\ntwo\n");
  ASSERT_TRUE(input.CanRewind());
  std::string line;
  while (input.ReadLine(10, line) == LineRead::kLine) {
  }
  input.Rewind();
  EXPECT_EQ(input.ReadLine(10, line), LineRead::kLine);
  EXPECT_EQ(line, "one");
  EXPECT_EQ(input.bytes_read(), 4);
  EXPECT_FALSE(DamagedText{"one"}.Open().CanRewind());
}

TEST(InputFile, AReadFailureIsNotTheEnd) {
  DamagedText disk{"one\ntw"};
  InputFile input = disk.Open();
  std::string line;
  EXPECT_EQ(input.ReadLine(10, line), LineRead::kLine);
  EXPECT_EQ(input.ReadLine(10, line), LineRead::kFailed);
  EXPECT_EQ(line, "");
  EXPECT_EQ(input.ReadLine(10, line), LineRead::kFailed);
  EXPECT_EQ(input.status(), absl::UnavailableError("cannot read disk: Input/output error"));

  DamagedText other{"one\ntw"};
  EXPECT_EQ(other.Open().ReadAll(100).status(),
            absl::UnavailableError("cannot read disk: Input/output error"));
}

TEST(InputFile, ReadsAllUpToTheLimit) {
  const std::string text = std::string(20'000, 'x') + "\n";
  EXPECT_EQ(TextFile(text).ReadAll(text.size()).value(), text);
  EXPECT_EQ(TextFile("").ReadAll(0).value(), "");
  EXPECT_EQ(TextFile(text).ReadAll(text.size() - 1).status(),
            absl::InvalidArgumentError("text has more than 20000 bytes"));
}

TEST(InputFile, NamesAnUnreadableFileWithTheReason) {
  for (const auto& [path, why] : {std::pair{"/", "Is a directory"},
                                  {"/nowhere/file", "No such file or directory"},
                                  {"/dev/null/file", "Not a directory"},
                                  {"", "No such file or directory"}}) {
    const absl::Status status = InputFile::Open(path).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(std::string("cannot read ") + path), HasSubstr(why)));
  }
  std::string line;
  EXPECT_EQ(InputFile::Open("/dev/null")->ReadLine(10, line), LineRead::kEnd);
}

}  // namespace
}  // namespace baton
