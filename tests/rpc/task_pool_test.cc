#include "rpc/task_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <vector>

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(TaskPool, TwoThreadsRunTwoTasksAtOnce) {
  TaskPool pool(2, 8, "things to do");
  std::promise<void> first, second;
  std::promise<void> first_done, second_done;
  ASSERT_TRUE(pool.Post([&] {
                    first.set_value();
                    second.get_future().wait();
                    first_done.set_value();
                  })
                  .ok());
  ASSERT_TRUE(pool.Post([&] {
                    second.set_value();
                    first.get_future().wait();
                    second_done.set_value();
                  })
                  .ok());
  first_done.get_future().wait();
  second_done.get_future().wait();
}

TEST(TaskPool, AFullQueueRefusesAndDropsTheTaskNamingTheBound) {
  TaskPool pool(1, 2, "things to do");
  std::promise<void> started, gate;
  ASSERT_TRUE(pool.Post([&] {
                    started.set_value();
                    gate.get_future().wait();
                  })
                  .ok());
  started.get_future().wait();
  std::promise<void> last;
  ASSERT_TRUE(pool.Post([] {}).ok());
  ASSERT_TRUE(pool.Post([&] { last.set_value(); }).ok());
  const auto captured = std::make_shared<int>(0);
  const absl::Status refused = pool.Post([captured] { ++*captured; });
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("maximum of 2 things to do"));
  EXPECT_EQ(captured.use_count(), 1);
  gate.set_value();
  last.get_future().wait();
  EXPECT_EQ(*captured, 0);
}

TEST(TaskPool, PostAlwaysTakesATaskBeyondTheLimitAndKeepsTheOrder) {
  TaskPool pool(1, 1, "things to do");
  std::promise<void> started, gate, last;
  std::vector<int> order;
  ASSERT_TRUE(pool.Post([&] {
                    started.set_value();
                    gate.get_future().wait();
                  })
                  .ok());
  started.get_future().wait();
  ASSERT_TRUE(pool.Post([&] { order.push_back(2); }).ok());
  EXPECT_FALSE(pool.Post([] {}).ok());
  pool.PostAlways([&] { order.push_back(1); }, 5);
  pool.PostAlways([&] { last.set_value(); });
  gate.set_value();
  last.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(TaskPool, TasksOfHigherPriorityStartFirst) {
  TaskPool pool(1, 8, "things to do");
  std::promise<void> started, gate, last;
  ASSERT_TRUE(pool.Post([&] {
                    started.set_value();
                    gate.get_future().wait();
                  })
                  .ok());
  started.get_future().wait();
  std::vector<int> order;
  for (const int priority : {0, -5, 7, 0, 7}) {
    ASSERT_TRUE(pool.Post([&order, priority] { order.push_back(priority); }, priority).ok());
  }
  ASSERT_TRUE(pool.Post([&last] { last.set_value(); }, -100).ok());
  gate.set_value();
  last.get_future().wait();
  EXPECT_THAT(order, ::testing::ElementsAre(7, 7, 0, 0, -5));
}

TEST(TaskPool, TheDestructorDropsQueuedTasksAndWaitsForRunningOnes) {
  const auto captured = std::make_shared<int>(0);
  std::promise<void> gate;
  bool finished = false;
  auto pool = std::make_unique<TaskPool>(1, 2, "things to do");
  std::promise<void> started;
  ASSERT_TRUE(pool->Post([&] {
                    started.set_value();
                    gate.get_future().wait();
                    finished = true;
                  })
                  .ok());
  started.get_future().wait();
  ASSERT_TRUE(pool->Post([captured] { ++*captured; }).ok());
  std::thread ender([&pool] { pool = nullptr; });
  gate.set_value();
  ender.join();
  EXPECT_TRUE(finished);
  EXPECT_EQ(captured.use_count(), 1);
}

}  // namespace
}  // namespace baton
