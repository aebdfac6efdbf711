// Fixed set of threads that together run the units of one loop at a time.
//
// The caller is one of the threads. Idle threads claim units one by one, in rising order. A worker
// that finds no unit spins for some tens of microseconds, because the ops of a step follow each
// other closely. Then it sleeps in the kernel. A call returns as soon as every unit is done. It
// does not wait for a worker that wakes late and finds no unit. No call allocates memory.
//
// Invariants:
// 1. Between calls `unclaimed_` and `unfinished_` are 0.
// 2. Only a thread that has claimed a unit reads the loop's function. The caller cannot return
//    before that unit is finished.
//
// Thread safety: ParallelFor may be called from any thread. While one call uses the workers, any
// other call (also one nested in it) runs its units alone, as worker 0.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace baton {

class ThreadPool {
 public:
  // Called as fn(unit, worker). `worker` in [0, threads()) is distinct for each thread of one call;
  // 0 is the calling thread. The function must not throw.
  using UnitFunction = absl::FunctionRef<void(int64_t unit, int worker)>;

  // Starts threads - 1 workers; the caller of ParallelFor is the other thread. REQUIRES: threads
  // >= 1.
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
  // Runs units of the current loop until all are claimed.
  void RunUnits(int worker);

  // Each is on its own cache line, because different threads write claims, completions and
  // wake-ups.
  alignas(64) std::atomic<int32_t> unclaimed_{0};
  alignas(64) std::atomic<int32_t> unfinished_{0};
  alignas(64) std::atomic<uint32_t> epoch_{0};  // changes when there may be new work
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<bool> busy_{false};  // true while a call uses the workers
  int32_t unit_count_ = 0;
  const UnitFunction* fn_ = nullptr;
  std::vector<std::thread> workers_;
};

}  // namespace baton
