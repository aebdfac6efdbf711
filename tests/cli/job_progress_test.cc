#include "cli/job_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <string>

namespace baton {
namespace {

using std::chrono::milliseconds;

std::string Written(std::FILE* file) {
  std::string text(static_cast<size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

TEST(JobProgress, TheLineShowsProgressSpeedAndTimeLeft) {
  JobCounts counts = {.answered = 29, .tokens = 2120, .to_do = 50};
  EXPECT_EQ(ProgressText(counts, milliseconds(10'000)), "29/50, 212 tokens/s, 0:08 left");
  counts.failed = 2;
  EXPECT_EQ(ProgressText(counts, milliseconds(31'000)), "31/50, 2 failed, 68 tokens/s, 0:19 left");
  // Jobs that --resume leaves out do not count as jobs to do.
  counts.skipped = 100;
  EXPECT_EQ(ProgressText(counts, milliseconds(31'000)), "31/50, 2 failed, 68 tokens/s, 0:19 left");
}

TEST(JobProgress, ShowsNoTimeLeftWithoutAFinishedJobOrATotal) {
  EXPECT_EQ(ProgressText({.to_do = 50}, milliseconds(0)), "0/50, 0 tokens/s");
  EXPECT_EQ(ProgressText({.answered = 3, .tokens = 30, .to_do = {}}, milliseconds(1000)),
            "3 done, 30 tokens/s");
}

TEST(JobProgress, ShowsHours) {
  EXPECT_EQ(ProgressText({.answered = 1, .to_do = 3}, milliseconds(3'661'000)),
            "1/3, 0 tokens/s, 2:02:02 left");
}

TEST(JobProgress, TotalsCountEveryJobOnce) {
  JobCounts counts = {.answered = 50, .tokens = 10812, .to_do = 50};
  EXPECT_EQ(TotalsText(counts, milliseconds(51'000)),
            "50 jobs: 50 answered; 10812 tokens in 0:51, 212 tokens/s");
  counts = {.answered = 1, .failed = 2, .skipped = 3, .not_begun = 4, .tokens = 5, .to_do = 7};
  EXPECT_EQ(TotalsText(counts, milliseconds(1'000)),
            "10 jobs: 1 answered, 2 failed, 3 answered before, 4 not begun; 5 tokens in 0:01, "
            "5 tokens/s");
  EXPECT_EQ(TotalsText({.answered = 1, .to_do = {}}, milliseconds(0)),
            "1 job: 1 answered; 0 tokens in 0:00, 0 tokens/s");
  // Does not count lines that were not read.
  EXPECT_EQ(TotalsText({.not_begun = 2, .to_do = {}}, milliseconds(0)),
            "2 jobs: 0 answered, 2 or more not begun; 0 tokens in 0:00, 0 tokens/s");
}

TEST(JobProgress, TheLineIsRewrittenInPlaceAndRemoved) {
  std::FILE* const file = std::tmpfile();
  {
    ProgressDisplay display(file, /*enabled=*/true);
    display.Clear();
    display.Show("one");
    display.Show("two");
    display.Clear();
    display.Clear();
    display.Show("three");
  }
  EXPECT_EQ(Written(file), "\rone\033[K\rtwo\033[K\r\033[K\rthree\033[K\r\033[K");
  std::fclose(file);
}

TEST(JobProgress, ShowsNothingWithoutATerminal) {
  std::FILE* const file = std::tmpfile();
  {
    ProgressDisplay display(file, /*enabled=*/false);
    display.Show("one");
    display.Clear();
  }
  EXPECT_EQ(Written(file), "");
  std::fclose(file);
}

}  // namespace
}  // namespace baton
