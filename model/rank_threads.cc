#include "model/rank_threads.h"

namespace baton {

RankThreads::RankThreads(size_t ranks) {
  for (size_t rank = 1; rank < ranks; ++rank) threads_.emplace_back([this, rank] { Loop(rank); });
}

RankThreads::~RankThreads() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  begun_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void RankThreads::Run(absl::FunctionRef<void(size_t)> work) {
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    running_ = threads_.size();
    ++runs_;
  }
  begun_.notify_all();
  work(0);
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return running_ == 0; });
}

void RankThreads::Loop(size_t rank) {
  int64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    begun_.wait(lock, [&] { return stopping_ || runs_ != seen; });
    if (stopping_) return;
    seen = runs_;
    const absl::FunctionRef<void(size_t)> work = *work_;
    lock.unlock();
    work(rank);
    lock.lock();
    if (--running_ == 0) ended_.notify_one();
  }
}

}  // namespace baton
