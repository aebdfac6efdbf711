// Threads that enqueue the work of a tensor-parallel group: one for each rank, so that no rank
// waits for another one that the same thread would serve later.
//
// GPUs need this. A stream's queue has a limit, and an enqueueing call waits when it is full. A
// rank whose queue is full waits for a collective, which needs the other ranks. NCCL may also wait
// for the other ranks inside a call.
//
// Thread safety: belongs to one thread at a time.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace baton {

class RankThreads {
 public:
  // REQUIRES: ranks >= 1.
  explicit RankThreads(size_t ranks);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // Calls work(rank) for each rank at once: for rank 0 on the caller's thread, for each other one
  // always on the same thread. Returns when all calls have returned.
  void Run(absl::FunctionRef<void(size_t rank)> work);

 private:
  void Loop(size_t rank);

  std::mutex mutex_;
  std::condition_variable begun_;
  std::condition_variable ended_;
  // Guarded by mutex_:
  const absl::FunctionRef<void(size_t)>* work_ = nullptr;
  int64_t runs_ = 0;    // calls of Run
  size_t running_ = 0;  // threads that have not returned from the last one
  bool stopping_ = false;
  std::vector<std::thread> threads_;  // last member: they use all of the above
};

}  // namespace baton
