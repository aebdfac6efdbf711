#include "kernels/cpu/stream_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

namespace baton {
namespace {

TEST(StreamThread, RunsTasksInOrderOnAThreadOfItsOwn) {
  StreamThread thread;
  std::vector<int> log;
  std::thread::id ran_on;
  for (int i = 0; i < 10'000; ++i) {
    thread.Push([&, i] {
      log.push_back(i);
      ran_on = std::this_thread::get_id();
    });
  }
  thread.Drain();
  ASSERT_EQ(log.size(), 10'000u);
  for (int i = 0; i < 10'000; ++i) ASSERT_EQ(log[i], i);
  EXPECT_NE(ran_on, std::this_thread::get_id());
}

TEST(StreamThread, DrainReturnsAtOnceWithoutTasks) {
  StreamThread thread;
  thread.Drain();
  thread.Push([] {});
  thread.Drain();
  thread.Drain();
}

TEST(StreamThread, RunsQueuedTasksBeforeItEnds) {
  std::atomic<int> ran{0};
  {
    StreamThread thread;
    for (int i = 0; i < 1000; ++i) thread.Push([&] { ++ran; });
  }
  EXPECT_EQ(ran, 1000);
}

TEST(StreamThread, ATaskIsDestroyedOnceItHasRun) {
  StreamThread thread;
  const auto held = std::make_shared<int>(0);
  std::weak_ptr<int> seen_by_next;
  bool gone = false;
  thread.Push([shared = std::make_shared<int>(1), &seen_by_next] { seen_by_next = shared; });
  thread.Push([&] { gone = seen_by_next.expired(); });
  thread.Drain();
  EXPECT_TRUE(gone);
}

TEST(StreamThread, TasksOfManyThreadsAllRunInTheOrderOfEach) {
  constexpr int kThreads = 4;
  constexpr int kTasks = 2000;
  StreamThread thread;
  std::vector<std::vector<int>> logs(kThreads);
  std::vector<std::thread> pushers;
  for (int t = 0; t < kThreads; ++t) {
    pushers.emplace_back([&, t] {
      for (int i = 0; i < kTasks; ++i) thread.Push([&logs, t, i] { logs[t].push_back(i); });
    });
  }
  for (std::thread& pusher : pushers) pusher.join();
  thread.Drain();
  for (const std::vector<int>& log : logs) {
    ASSERT_EQ(log.size(), kTasks);
    for (int i = 0; i < kTasks; ++i) ASSERT_EQ(log[i], i);
  }
}

}  // namespace
}  // namespace baton
