#include "observe/process_figures.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "common/file_descriptor.h"

namespace baton {
namespace {

TEST(ProcessFigures, AreThoseOfThisProcess) {
  const ProcessFigures before = ReadProcessFigures();
  EXPECT_GT(before.resident_bytes, 1 << 20);
  EXPECT_GE(before.virtual_bytes, before.resident_bytes);
  EXPECT_GT(before.max_fds, 0);
  EXPECT_GE(before.threads, 1);
  // It started less than a day ago, and not in the future.
  const int64_t now_us = static_cast<int64_t>(time(nullptr)) * 1'000'000;
  EXPECT_LE(before.started_us, now_us + 2'000'000);
  EXPECT_GT(before.started_us, now_us - int64_t{86'400} * 1'000'000);
}

TEST(ProcessFigures, CountDescriptors) {
  const int64_t before = ReadProcessFigures().open_fds;
  const FileDescriptor one(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const FileDescriptor two(open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(ReadProcessFigures().open_fds, before + 2);
}

TEST(ProcessFigures, CountCpuTimeThatWasUsed) {
  const int64_t before = ReadProcessFigures().cpu_us;
  volatile uint64_t sink = 0;
  while (ReadProcessFigures().cpu_us < before + 20'000) {
    for (int i = 0; i < 100'000; ++i) sink = sink + 1;
  }
  EXPECT_GE(ReadProcessFigures().cpu_us, before + 20'000);
}

TEST(ProcessFigures, BecomeMetrics) {
  MetricSet set(MetricPrograms::kWorkers);
  SetProcessMetrics({.cpu_us = 1,
                     .started_us = 2,
                     .resident_bytes = 3,
                     .virtual_bytes = 4,
                     .open_fds = 5,
                     .max_fds = 6,
                     .threads = 7},
                    set);
  EXPECT_EQ(set.Cells(Metric::kProcessCpu), 1);
  EXPECT_EQ(set.Cells(Metric::kProcessStart), 2);
  EXPECT_EQ(set.Cells(Metric::kProcessResident), 3);
  EXPECT_EQ(set.Cells(Metric::kProcessVirtual), 4);
  EXPECT_EQ(set.Cells(Metric::kProcessOpenFds), 5);
  EXPECT_EQ(set.Cells(Metric::kProcessMaxFds), 6);
  EXPECT_EQ(set.Cells(Metric::kProcessThreads), 7);
}

}  // namespace
}  // namespace baton
