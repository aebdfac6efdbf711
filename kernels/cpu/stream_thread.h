// Thread of an asynchronous CPU stream. It runs tasks one after the other, in the order in which
// they were pushed.
//
// Thread safety: safe from any thread. Tasks that one thread pushes keep their order.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace baton {

class StreamThread {
 public:
  using Task = std::function<void()>;

  StreamThread();
  // Runs all tasks that were pushed before, then ends the thread.
  ~StreamThread();
  StreamThread(const StreamThread&) = delete;
  StreamThread& operator=(const StreamThread&) = delete;

  void Push(Task task);
  // Blocks until everything pushed before has run. REQUIRES: not called by a task.
  void Drain();

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable idle_;
  std::vector<Task> tasks_;
  bool running_ = false;  // the thread runs tasks that it has taken out of tasks_
  bool stopping_ = false;
  std::thread thread_;  // last member: the thread uses all of the above
};

}  // namespace baton
