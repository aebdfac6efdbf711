#include "rpc/task_pool.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {

TaskPool::TaskPool(int32_t threads, size_t max_queued, std::string what)
    : max_queued_(max_queued), what_(std::move(what)) {
  for (int32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

TaskPool::~TaskPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::Status TaskPool::Post(std::function<void()> task, int32_t priority) {
  std::lock_guard lock(mutex_);
  if (stopping_) return absl::UnavailableError("this process is ending");
  if (queue_.size() >= max_queued_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this process has its maximum of ", max_queued_, " ", what_));
  }
  PostLocked(std::move(task), priority);
  return absl::OkStatus();
}

void TaskPool::PostAlways(std::function<void()> task, int32_t priority) {
  std::lock_guard lock(mutex_);
  if (!stopping_) PostLocked(std::move(task), priority);
}

void TaskPool::PostLocked(std::function<void()> task, int32_t priority) {
  queue_.emplace(std::pair(-int64_t{priority}, next_turn_++), std::move(task));
  changed_.notify_one();
}

void TaskPool::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    std::function<void()> task = std::move(queue_.begin()->second);
    queue_.erase(queue_.begin());
    lock.unlock();
    task();
    task = nullptr;  // destroys its captures without the lock
    lock.lock();
  }
}

}  // namespace baton
