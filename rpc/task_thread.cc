#include "rpc/task_thread.h"

#include <utility>

namespace baton {

TaskThread::TaskThread(size_t max_queued) : max_queued_(max_queued), thread_([this] { Run(); }) {}

TaskThread::~TaskThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

bool TaskThread::Post(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  if (stopping_ || queue_.size() >= max_queued_) return false;
  queue_.push_back(std::move(task));
  changed_.notify_one();
  return true;
}

void TaskThread::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    std::function<void()> task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // what it captured ends here, without the lock
    lock.lock();
  }
}

}  // namespace baton
