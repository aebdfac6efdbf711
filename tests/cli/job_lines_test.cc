#include "cli/job_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/cli/text_file.h"

namespace baton {
namespace {

class JobLinesTest : public ::testing::Test {
 protected:
  // Hands out all lines of `input`, ends each with `end` in the order of `ends`, and returns the
  // output.
  template <typename End>
  std::string Printed(JobLines& lines, std::vector<int64_t> ends, const End& end) {
    std::string line;
    int64_t number = 0;
    for (size_t i = 0; i < ends.size(); ++i) EXPECT_EQ(lines.Next(line, number), LineRead::kLine);
    ::testing::internal::CaptureStdout();
    for (const int64_t n : ends) end(n);
    return ::testing::internal::GetCapturedStdout();
  }

  InputFile input_ = TextFile("a\n\nb\nc\nd\n");
  ProgressDisplay display_{stderr, /*enabled=*/false};
};

TEST_F(JobLinesTest, BlankLinesAreCountedAndNotHandedOut) {
  JobLines lines(&input_, &display_, /*ordered=*/false, 4);
  std::string line;
  int64_t number = 0;
  EXPECT_EQ(lines.Next(line, number), LineRead::kLine);
  EXPECT_EQ(lines.Next(line, number), LineRead::kLine);
  EXPECT_EQ(line, "b");
  EXPECT_EQ(number, 3);
}

TEST_F(JobLinesTest, ResultsArePrintedAsTheyEnd) {
  JobLines lines(&input_, &display_, /*ordered=*/false, 4);
  EXPECT_EQ(Printed(lines, {4, 1, 5, 3},
                    [&](int64_t n) { lines.Answered(n, {.text = absl::StrCat(n)}, 1); }),
            "4\n1\n5\n3\n");
  EXPECT_EQ(lines.counts().answered, 4);
  EXPECT_EQ(lines.counts().tokens, 4);
}

TEST_F(JobLinesTest, OrderedResultsArePrintedInTheOrderOfTheirLines) {
  JobLines lines(&input_, &display_, /*ordered=*/true, 4);
  EXPECT_EQ(Printed(lines, {4, 1, 5, 3},
                    [&](int64_t n) {
                      if (n == 4) return lines.Failed(n, "failed");
                      if (n == 1) return lines.Skipped(n);
                      lines.Answered(n, {.text = absl::StrCat(n)}, 1);
                    }),
            "3\nfailed\n5\n");
}

TEST_F(JobLinesTest, NotesFollowTheirResultOnStandardError) {
  JobLines lines(&input_, &display_, /*ordered=*/true, 4);
  ::testing::internal::CaptureStderr();
  const std::string printed = Printed(lines, {3, 1, 4, 5}, [&](int64_t n) {
    lines.Answered(n, {.text = absl::StrCat(n), .notes = absl::StrCat("note ", n, "\n")}, 1);
  });
  EXPECT_EQ(printed, "1\n3\n4\n5\n");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "note 1\nnote 3\nnote 4\nnote 5\n");
}

TEST_F(JobLinesTest, JobsThatNeverBeganDelayNoResult) {
  JobLines lines(&input_, &display_, /*ordered=*/true, 4);
  EXPECT_EQ(Printed(lines, {3, 4, 1},
                    [&](int64_t n) {
                      if (n == 1) return lines.NotBegun(n, absl::UnavailableError("gone"));
                      lines.Answered(n, {.text = absl::StrCat(n)}, 1);
                    }),
            "3\n4\n");
  std::string line;
  int64_t number = 0;
  EXPECT_EQ(lines.Next(line, number), LineRead::kEnd);
  EXPECT_EQ(lines.counts().not_begun, 2);  // also counts the line that was not handed out
  EXPECT_EQ(lines.not_begun_status(), absl::UnavailableError("gone"));
}

TEST_F(JobLinesTest, WithoutATotalOnlyLinesThatWereReadAreCounted) {
  JobLines lines(&input_, &display_, /*ordered=*/false, std::nullopt);
  std::string line;
  int64_t number = 0;
  lines.Next(line, number);
  lines.NotBegun(number, absl::CancelledError("interrupted"));
  EXPECT_EQ(lines.counts().not_begun, 1);
}

// Many threads end results in any order. An ordered output has all of them in order.
TEST(JobLines, ThreadsPrintInOrder) {
  constexpr int kLines = 3 * static_cast<int>(kMostOpenLines);
  std::string text;
  for (int i = 1; i <= kLines; ++i) absl::StrAppend(&text, i, "\n");
  InputFile input = TextFile(text);
  ProgressDisplay display(stderr, /*enabled=*/false);
  ::testing::internal::CaptureStdout();
  {
    JobLines lines(&input, &display, /*ordered=*/true, kLines);
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 8; ++t) {
      threads.emplace_back([&lines, t] {
        std::mt19937 random(t);
        std::string line;
        int64_t number = 0;
        while (lines.Next(line, number) == LineRead::kLine) {
          if (random() % 64 == 0) std::this_thread::yield();
          lines.Answered(number, {.text = line}, 1);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(lines.counts().answered, kLines);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStdout() == text, true);
}

// The first line takes long. The other threads wait before they store too many results.
TEST(JobLines, ResultsThatWaitForTheirTurnAreBounded) {
  std::string text;
  for (size_t i = 0; i < kMostOpenLines + 10; ++i) absl::StrAppend(&text, i, "\n");
  InputFile input = TextFile(text);
  ProgressDisplay display(stderr, /*enabled=*/false);
  JobLines lines(&input, &display, /*ordered=*/true, std::nullopt);
  std::string line;
  int64_t number = 0;
  ::testing::internal::CaptureStdout();
  ASSERT_EQ(lines.Next(line, number), LineRead::kLine);
  for (size_t i = 1; i < kMostOpenLines; ++i) {
    ASSERT_EQ(lines.Next(line, number), LineRead::kLine);
    lines.Answered(number, {.text = line}, 1);
  }
  std::thread first([&lines] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    lines.Answered(1, {.text = "0"}, 1);
  });
  ASSERT_EQ(lines.Next(line, number), LineRead::kLine);
  EXPECT_EQ(lines.counts().answered, static_cast<int64_t>(kMostOpenLines));  // with the first line
  first.join();
  ::testing::internal::GetCapturedStdout();
}

}  // namespace
}  // namespace baton
