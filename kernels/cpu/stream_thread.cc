#include "kernels/cpu/stream_thread.h"

#include <utility>

#include "common/check.h"

namespace baton {

StreamThread::StreamThread() : thread_([this] { Loop(); }) {}

StreamThread::~StreamThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  arrived_.notify_one();
  thread_.join();
}

void StreamThread::Push(Task task) {
  bool first;
  {
    const std::lock_guard lock(mutex_);
    first = tasks_.empty();
    tasks_.push_back(std::move(task));
  }
  if (first) arrived_.notify_one();  // if other tasks were queued, the thread is awake
}

void StreamThread::Drain() {
  CHECK(std::this_thread::get_id() != thread_.get_id())
      << "a task must not wait for its own stream";
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return tasks_.empty() && !running_; });
}

void StreamThread::Loop() {
  std::vector<Task> batch;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      running_ = false;
      if (tasks_.empty()) idle_.notify_all();
      arrived_.wait(lock, [this] { return !tasks_.empty() || stopping_; });
      if (tasks_.empty()) return;
      batch.swap(tasks_);
      running_ = true;
    }
    for (Task& task : batch) {
      task();
      task = nullptr;  // release the task's captures
    }
    batch.clear();
  }
}

}  // namespace baton
