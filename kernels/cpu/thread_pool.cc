#include "kernels/cpu/thread_pool.h"

#include <limits>

#include "common/check.h"
#include "kernels/cpu/pause.h"

namespace baton {
namespace {

// A pause takes 40 to 140 cycles, so spinning lasts 15 to 50 µs.
constexpr int kSpins = 1000;

}  // namespace

ThreadPool::ThreadPool(int threads) {
  CHECK_GE(threads, 1);
  workers_.reserve(threads - 1);
  for (int worker = 1; worker < threads; ++worker) {
    workers_.emplace_back([this, worker] { WorkerLoop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::ParallelFor(int64_t unit_count, UnitFunction fn) {
  if (unit_count <= 1 || workers_.empty() || busy_.exchange(true, std::memory_order_acquire)) {
    for (int64_t unit = 0; unit < unit_count; ++unit) fn(unit, 0);
    return;
  }
  CHECK_LE(unit_count, std::numeric_limits<int32_t>::max());
  unit_count_ = static_cast<int32_t>(unit_count);
  fn_ = &fn;
  unfinished_.store(unit_count_, std::memory_order_relaxed);
  unclaimed_.store(unit_count_, std::memory_order_release);  // publishes the three above
  epoch_.fetch_add(1);
  epoch_.notify_all();  // makes a system call only if a thread sleeps

  RunUnits(0);
  for (int spin = 0; spin < kSpins; ++spin) {
    if (unfinished_.load(std::memory_order_acquire) == 0) break;
    Pause();
  }
  for (int32_t left = unfinished_.load(std::memory_order_acquire); left != 0;
       left = unfinished_.load(std::memory_order_acquire)) {
    unfinished_.wait(left, std::memory_order_acquire);
  }
  busy_.store(false, std::memory_order_release);
}

void ThreadPool::RunUnits(int worker) {
  int32_t left = unclaimed_.load(std::memory_order_relaxed);
  while (left > 0) {
    if (!unclaimed_.compare_exchange_weak(left, left - 1, std::memory_order_acquire,
                                          std::memory_order_relaxed)) {
      continue;
    }
    (*fn_)(unit_count_ - left, worker);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1 && worker != 0) {
      unfinished_.notify_one();
    }
    left = unclaimed_.load(std::memory_order_relaxed);
  }
}

void ThreadPool::WorkerLoop(int worker) {
  while (!stopping_.load(std::memory_order_acquire)) {
    const uint32_t seen = epoch_.load(std::memory_order_acquire);
    RunUnits(worker);
    bool changed = false;
    for (int spin = 0; spin < kSpins && !changed; ++spin) {
      changed = epoch_.load(std::memory_order_relaxed) != seen;
      if (!changed) Pause();
    }
    if (!changed && !stopping_.load(std::memory_order_acquire)) epoch_.wait(seen);
  }
}

}  // namespace baton
