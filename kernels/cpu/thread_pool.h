// A fixed set of threads that share the units of one loop at a time.
//
// The caller is one of the threads. Units are handed out one by one, in rising order, to whoever is
// free. Workers that run out of units spin for some tens of microseconds (ops of a step follow each
// other closely), then sleep in the kernel. A call returns as soon as every unit is done: a worker
// that wakes late finds nothing and is not waited for. No call allocates memory.
//
// Invariant: between calls `unclaimed_` and `unfinished_` are 0, and only a thread that has claimed
// a unit reads the loop's function; the caller cannot leave before that unit is finished.
//
// Thread safety: ParallelFor may be called from any thread. While one call has the workers, another
// one (also a nested one) runs its units by itself, as worker 0.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace baton {

class ThreadPool {
 public:
  // fn(unit, worker): `worker` in [0, threads()) is the caller's name for the thread, distinct
  // among the threads of one call; 0 is the calling thread. fn must not throw.
  using UnitFunction = absl::FunctionRef<void(int64_t unit, int worker)>;

  // Starts threads - 1 workers. REQUIRES: threads >= 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs fn once for each unit in [0, unit_count) and returns when all are done.
  // REQUIRES: unit_count < 2^31.
  void ParallelFor(int64_t unit_count, UnitFunction fn);

 private:
  void WorkerLoop(int worker);
  // Runs units of the current loop until none is unclaimed.
  void RunUnits(int worker);

  // Each on its own cache line: claims, completions and wake-ups come from different threads.
  alignas(64) std::atomic<int32_t> unclaimed_{0};
  alignas(64) std::atomic<int32_t> unfinished_{0};
  alignas(64) std::atomic<uint32_t> epoch_{0};  // changes when there may be something to do
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<bool> busy_{false};  // a call has the workers
  int32_t unit_count_ = 0;
  const UnitFunction* fn_ = nullptr;
  std::vector<std::thread> workers_;
};

}  // namespace baton
