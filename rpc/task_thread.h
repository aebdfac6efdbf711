// A thread with a bounded queue, for work that would block a gRPC callback: loading a tokenizer,
// asking an engine for its state.
//
// Thread safety: Post from any thread. The destructor drops what is queued and waits for the task
// that runs.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace baton {

class TaskThread {
 public:
  explicit TaskThread(size_t max_queued);
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // False when the queue is full; the task is dropped then.
  [[nodiscard]] bool Post(std::function<void()> task);

 private:
  void Run();

  const size_t max_queued_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::thread thread_;  // last: starts when all else is there
};

}  // namespace baton
