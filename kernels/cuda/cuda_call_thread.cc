#include "kernels/cuda/cuda_call_thread.h"

#include <utility>

#include "common/check.h"

namespace baton {

CudaCallThread::CudaCallThread(std::shared_ptr<CudaContext> context)
    : context_(std::move(context)), thread_([this] { Loop(); }) {}

CudaCallThread::~CudaCallThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  arrived_.notify_one();
  thread_.join();
  const CudaDriver& driver = context_->Enter();
  for (const CuEvent marker : free_markers_) driver.EventDestroy(marker);
}

CuEvent CudaCallThread::TakeMarker() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_markers_.empty()) {
      const CuEvent marker = free_markers_.back();
      free_markers_.pop_back();
      return marker;
    }
  }
  CuEvent marker = nullptr;
  context_->Expect("cuEventCreate", context_->Enter().EventCreate(&marker, kCuEventDisableTiming));
  return marker;
}

void CudaCallThread::Push(CuStream stream, std::function<void()> function) {
  Task task{.marker = TakeMarker(), .function = std::move(function)};
  if (task.marker != nullptr) {
    context_->Expect("cuEventRecord", context_->Enter().EventRecord(task.marker, stream));
  }
  ++pushed_;
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  arrived_.notify_one();
}

void CudaCallThread::Wait(const Returned& returned, uint64_t count) {
  for (;;) {
    const uint64_t now = returned->load();
    if (now >= count) return;
    returned->wait(now);
  }
}

void CudaCallThread::Loop() {
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      arrived_.wait(lock, [this] { return !tasks_.empty() || stopping_; });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    if (task.marker != nullptr) {
      context_->Expect("cuEventSynchronize", context_->Enter().EventSynchronize(task.marker));
    }
    task.function();
    task.function = nullptr;  // release its captures before the count
    if (task.marker != nullptr) {
      const std::lock_guard lock(mutex_);
      free_markers_.push_back(task.marker);
    }
    counter_->fetch_add(1);
    counter_->notify_all();
  }
}

}  // namespace baton
