// The thread of an asynchronous CPU stream: runs tasks one after the other, in the order in which
// they came.
//
// Thread safety: any thread; tasks of one thread keep its order.
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
  // Runs what was pushed before.
  ~StreamThread();
  StreamThread(const StreamThread&) = delete;
  StreamThread& operator=(const StreamThread&) = delete;

  void Push(Task task);
  // Returns when everything pushed before has run. REQUIRES: not called by a task.
  void Drain();

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable idle_;
  std::vector<Task> tasks_;
  bool running_ = false;  // tasks that are no longer in tasks_
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace baton
