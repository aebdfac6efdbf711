#include "kernels/cpu/cpu_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace baton {
namespace {

TEST(CpuStream, RunsAtOnceAndRecordsWhileCapturing) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  std::vector<int> log;
  stream.Enqueue([&](CpuStream&) { log.push_back(1); });
  EXPECT_EQ(log, std::vector<int>({1}));

  EXPECT_FALSE(stream.capturing());
  stream.BeginCapture();
  EXPECT_TRUE(stream.capturing());
  stream.Enqueue([&](CpuStream&) { log.push_back(2); });
  stream.Enqueue([&](CpuStream&) { log.push_back(3); });
  const auto graph = stream.EndCapture();
  EXPECT_FALSE(stream.capturing());
  EXPECT_EQ(graph->op_count(), 2);
  EXPECT_EQ(log, std::vector<int>({1}));

  stream.Launch(*graph);
  stream.Launch(*graph);
  EXPECT_EQ(log, std::vector<int>({1, 2, 3, 2, 3}));
}

TEST(CpuStream, ACaptureHoldsOnlyItsOwnOps) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  stream.BeginCapture();
  stream.Enqueue([](CpuStream&) {});
  EXPECT_EQ(stream.EndCapture()->op_count(), 1);
  stream.BeginCapture();
  EXPECT_EQ(stream.EndCapture()->op_count(), 0);
}

TEST(CpuStream, GraphsNestAndOutliveTheirParts) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  int count = 0;
  stream.BeginCapture();
  stream.Enqueue([&](CpuStream&) { ++count; });
  auto inner = stream.EndCapture();
  stream.BeginCapture();
  stream.Launch(*inner);
  stream.Launch(*inner);
  const auto outer = stream.EndCapture();
  inner.reset();
  EXPECT_EQ(count, 0);
  EXPECT_EQ(outer->op_count(), 2);
  stream.Launch(*outer);
  EXPECT_EQ(count, 2);
}

TEST(CpuStream, AGraphRunsOnTheStreamThatLaunchesIt) {
  ThreadPool pool(1);
  CpuStream first(pool), second(pool);
  CpuStream* ran_on = nullptr;
  first.BeginCapture();
  first.Enqueue([&](CpuStream& stream) { ran_on = &stream; });
  const auto graph = first.EndCapture();
  second.Launch(*graph);
  EXPECT_EQ(ran_on, &second);
}

TEST(CpuStream, ALaunchStopsBetweenTwoOps) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  int ran = 0;
  stream.BeginCapture();
  for (int i = 0; i < 5; ++i) stream.Enqueue([&](CpuStream&) { ++ran; });
  const auto graph = stream.EndCapture();
  for (int most = 0; most <= 6; ++most) {
    ran = 0;
    stream.LaunchUntil(*graph, [&] { return ran == most; });
    EXPECT_EQ(ran, std::min(most, 5));
  }
}

TEST(CpuStream, CopiesReadTheirSourceWhenTheyRun) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  int source = 1, destination = 0;
  stream.BeginCapture();
  stream.Copy(&destination, &source, sizeof(int));
  stream.Copy(&destination, nullptr, 0);
  const auto graph = stream.EndCapture();
  source = 2;
  EXPECT_EQ(destination, 0);
  stream.Launch(*graph);
  stream.Synchronize();
  EXPECT_EQ(destination, 2);
}

}  // namespace
}  // namespace baton
