#include "kernels/cpu/cpu_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "kernels/cpu/cpu_event.h"

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

TEST(CpuStream, AnInlineStreamCallsAtOnceAndItsEventsAreDone) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  Event event;
  stream.Record(event);
  EXPECT_TRUE(event.Done());
  bool called = false;
  stream.Call([&] { called = true; });
  EXPECT_TRUE(called);
}

// ---- with its own thread ------------------------------------------------------------------------

// Blocks a stream's thread until Open is called.
class Gate {
 public:
  void Open() {
    open_.store(true);
    open_.notify_all();
  }
  void Pass() const { open_.wait(false); }

 private:
  std::atomic<bool> open_{false};
};

TEST(AsynchronousCpuStream, OpsCopiesCallsAndGraphsRunLaterAndInOrder) {
  ThreadPool pool(2);
  CpuStream stream(pool, CpuStream::Runs::kOnItsThread);
  Gate gate;
  std::vector<int> log;
  int source = 7, destination = 0;
  stream.BeginCapture();
  stream.Enqueue([&](CpuStream&) { log.push_back(3); });
  stream.Enqueue([&](CpuStream&) { log.push_back(destination); });
  auto graph = stream.EndCapture();
  stream.Call([&] { gate.Pass(); });
  stream.Enqueue([&](CpuStream&) { log.push_back(1); });
  stream.Call([&] { log.push_back(2); });
  stream.Copy(&destination, &source, sizeof(int));
  stream.Launch(*graph);
  stream.LaunchUntil(*graph, [&] { return log.size() == 5; });
  graph.reset();  // the enqueued launch keeps the graph alive
  EXPECT_TRUE(log.empty());
  EXPECT_EQ(destination, 0);
  gate.Open();
  stream.Synchronize();
  EXPECT_EQ(log, (std::vector<int>{1, 2, 3, 7, 3}));
}

TEST(AsynchronousCpuStream, AnEventIsDoneWhenAllEarlierWorkHasRun) {
  ThreadPool pool(1);
  CpuStream stream(pool, CpuStream::Runs::kOnItsThread);
  CpuEvent first, second;
  Gate before_first, before_second;
  int written = 0;
  stream.Call([&] { before_first.Pass(); });
  stream.Enqueue([&](CpuStream&) { written = 1; });
  stream.Record(first);
  stream.Call([&] { before_second.Pass(); });
  stream.Enqueue([&](CpuStream&) { written = 2; });
  stream.Record(second);
  EXPECT_FALSE(first.Done());
  before_first.Open();
  first.Wait();
  EXPECT_EQ(written, 1);
  EXPECT_FALSE(second.Done());
  before_second.Open();
  second.Wait();
  EXPECT_EQ(written, 2);
}

TEST(AsynchronousCpuStream, AStepIsDroppedBetweenTwoOpsByItsThread) {
  ThreadPool pool(1);
  CpuStream stream(pool, CpuStream::Runs::kOnItsThread);
  Gate third_op;
  std::atomic<int> ran{0};
  std::atomic<bool> unwanted{false};
  stream.BeginCapture();
  for (int i = 0; i < 5; ++i) {
    stream.Enqueue([&, i](CpuStream&) {
      ran = i + 1;
      ran.notify_all();
      if (i == 2) third_op.Pass();
    });
  }
  const auto graph = stream.EndCapture();
  stream.LaunchUntil(*graph, [&] { return unwanted.load(); });
  for (int seen = ran; seen < 3; seen = ran) ran.wait(seen);
  unwanted = true;  // set while the third op runs
  third_op.Open();
  stream.Synchronize();
  EXPECT_EQ(ran, 3);
}

TEST(AsynchronousCpuStream, DestructionRunsTheQueuedWork) {
  ThreadPool pool(2);
  int ran = 0;
  {
    CpuStream stream(pool, CpuStream::Runs::kOnItsThread);
    for (int i = 0; i < 100; ++i) {
      stream.Enqueue(
          [&](CpuStream& cpu) { cpu.pool().ParallelFor(1, [&](int64_t, int) { ++ran; }); });
    }
  }
  EXPECT_EQ(ran, 100);
}

}  // namespace
}  // namespace baton
