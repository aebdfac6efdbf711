#include "cli/merged_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "absl/strings/str_split.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class MergedLogTest : public ::testing::Test {
 protected:
  MergedLogTest() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    output_ = ends[0];
    log_end_ = ends[1];
    log_ = *MergedLog::Create(log_end_);
  }
  ~MergedLogTest() override { close(output_); }

  static void Write(int writer, const std::string& text) {
    EXPECT_EQ(write(writer, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  // Waits for the next line of the log and returns it.
  std::string ReadLine() {
    std::string line;
    for (char byte; read(output_, &byte, 1) == 1 && byte != '\n';) line += byte;
    return line;
  }

  // Returns the remaining lines, after every writer has closed its pipe.
  std::vector<std::string> Rest() {
    log_->Finish();
    close(log_end_);
    std::string text;
    char buffer[4096];
    for (ssize_t count; (count = read(output_, buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<size_t>(count));
    }
    return absl::StrSplit(text, '\n', absl::SkipEmpty());
  }

  int output_ = -1;
  int log_end_ = -1;
  std::unique_ptr<MergedLog> log_;
};

TEST_F(MergedLogTest, ALineAppearsAtOnceBehindItsWritersName) {
  const int router = *log_->AddWriter("router");
  const int worker = *log_->AddWriter("prefill-0");
  Write(worker, "half a ");
  Write(router, "whole\n");
  EXPECT_EQ(ReadLine(), "router     | whole");
  Write(worker, "line\n\nlast");
  EXPECT_EQ(ReadLine(), "prefill-0  | half a line");
  EXPECT_EQ(ReadLine(), "prefill-0  | ");
  close(router);
  close(worker);
  EXPECT_THAT(Rest(), ElementsAre("prefill-0  | last"));
}

TEST_F(MergedLogTest, WhatWasWrittenBeforeTheEndIsNotLost) {
  const int a = *log_->AddWriter("a");
  const int b = *log_->AddWriter("b");
  Write(a, "one\ntwo");
  Write(b, "three");
  close(a);
  close(b);
  EXPECT_THAT(Rest(),
              UnorderedElementsAre("a          | one", "a          | two", "b          | three"));
}

TEST_F(MergedLogTest, AWriterThatEndsNoLineIsNotHeldForEver) {
  const int writer = *log_->AddWriter("a");
  Write(writer, std::string(MergedLog::kMaxLineBytes, 'x'));
  EXPECT_EQ(ReadLine(), "a          | " + std::string(MergedLog::kMaxLineBytes, 'x'));
  close(writer);
  EXPECT_THAT(Rest(), ElementsAre());
}

TEST_F(MergedLogTest, ALogWithoutWritersEnds) { EXPECT_THAT(Rest(), ElementsAre()); }

// Another process made the output non-blocking, and its reader is slower than the writers.
TEST_F(MergedLogTest, ANonBlockingOutputLosesNoLine) {
  ASSERT_EQ(fcntl(log_end_, F_SETFL, O_NONBLOCK), 0);
  const int router = *log_->AddWriter("router");
  constexpr int kLines = 3000;
  std::thread writer([&] {
    for (int i = 0; i < kLines; ++i) Write(router, std::string(60, 'x') + std::to_string(i) + "\n");
    close(router);
  });
  for (int i = 0; i < kLines; ++i) {
    ASSERT_EQ(ReadLine(), "router     | " + std::string(60, 'x') + std::to_string(i));
  }
  writer.join();
  EXPECT_TRUE(Rest().empty());
}

// The writer's text exceeds the pipes' capacity and the output has no reader. Finish returns
// anyway.
TEST_F(MergedLogTest, AnOutputThatNobodyReadsDoesNotHoldUpTheEnd) {
  const int router = *log_->AddWriter("router");
  std::thread writer([&] {
    for (int i = 0; i < 100; ++i) Write(router, std::string(999, 'x') + "\n");
    close(router);
  });
  writer.join();  // 100 kB fit into two pipes of 64 KiB
  log_->Finish();
  EXPECT_EQ(ReadLine(), "router     | " + std::string(999, 'x'));
  close(log_end_);
}

}  // namespace
}  // namespace baton
