#include "cli/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <iostream>
#include <string>

#include "tests/cli/full_standard_output.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

struct End {
  int exit_code;
  std::string said;
};

// Returns the end of a command that prints to a full disk and ends with `exit_code`.
End EndOnFullDisk(int exit_code, const std::function<void()>& print) {
  ::testing::internal::CaptureStderr();
  const FullStandardOutput full;
  print();
  const int code = EndCommand(exit_code);
  return {.exit_code = code, .said = ::testing::internal::GetCapturedStderr()};
}

void Print() { std::printf("result\n"); }

TEST(Outcome, WhatIsWrittenIsWritten) {
  std::FILE* const file = std::tmpfile();
  std::fputs("result\n", file);
  EXPECT_TRUE(CheckWritten(file).ok());
  EXPECT_EQ(std::ftell(file), 7);
  std::fclose(file);
}

TEST(Outcome, LostResultsAreNoSuccess) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(EndCommand(0), 0);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  const End end = EndOnFullDisk(0, Print);
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.said, HasSubstr("No space left on device"));
}

TEST(Outcome, LostResultsLeaveAnotherFailureItsExitCode) {
  const End end = EndOnFullDisk(2, Print);
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.said, HasSubstr("No space left on device"));
}

TEST(Outcome, AWriteThatFailsBeforeTheEndIsToldAtOnceAndRemembered) {
  const End end = EndOnFullDisk(0, [] {
    PrintResult("result\n");
    PrintResult("another\n");
  });
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_EQ(end.said,
            "baton: UNAVAILABLE: cannot write results: No space left on device\n"
            "baton: UNAVAILABLE: results are lost: a write failed before the end\n");
  EXPECT_EQ(EndOnFullDisk(0, [] { std::cout << "result" << std::endl; }).exit_code, 1);
}

}  // namespace
}  // namespace baton
