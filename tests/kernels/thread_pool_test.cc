#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace baton {
namespace {

TEST(ThreadPool, EveryUnitRunsOnceForAnyThreadAndUnitCount) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t units : {0, 1, 2, 7, 100, 1000}) {
      std::vector<int> runs(units, 0);  // one per unit; running a unit twice at once is a data race
      pool.ParallelFor(units, [&](int64_t unit, int worker) {
        EXPECT_GE(worker, 0);
        EXPECT_LT(worker, threads);
        ++runs[unit];
      });
      EXPECT_EQ(runs, std::vector<int>(units, 1));
    }
  }
}

TEST(ThreadPool, CallsSeeWhatEarlierCallsWrote) {
  ThreadPool pool(4);
  std::vector<int64_t> values(64, 0);
  for (int64_t round = 1; round <= 5000; ++round) {
    // Reads a neighbour's value that another thread may have written in the previous round.
    std::vector<int64_t> next(values.size());
    pool.ParallelFor(static_cast<int64_t>(values.size()), [&](int64_t unit, int) {
      next[unit] = values[(unit + 1) % values.size()] + 1;
    });
    values.swap(next);
    ASSERT_EQ(std::accumulate(values.begin(), values.end(), int64_t{0}), round * 64);
  }
}

TEST(ThreadPool, SleepingWorkersWakeAndLateOnesDoNoHarm) {
  ThreadPool pool(3);
  std::atomic<int64_t> sum{0};
  for (int round = 0; round < 50; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 5));  // workers stop spinning
    pool.ParallelFor(5, [&](int64_t unit, int) { sum += unit; });
  }
  EXPECT_EQ(sum, 50 * 10);
}

TEST(ThreadPool, WorkerNamesAreDistinctWithinACall) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  for (int round = 0; round < 200; ++round) {
    pool.ParallelFor(16, [&](int64_t, int worker) {
      EXPECT_EQ(inside[worker].fetch_add(1), 0);
      inside[worker].fetch_sub(1);
    });
  }
}

TEST(ThreadPool, ANestedCallRunsItsUnitsAlone) {
  ThreadPool pool(3);
  std::atomic<int> count{0};
  for (int round = 0; round < 500; ++round) {
    pool.ParallelFor(4, [&](int64_t, int) {
      const std::thread::id caller = std::this_thread::get_id();
      pool.ParallelFor(3, [&](int64_t, int worker) {
        EXPECT_EQ(worker, 0);
        EXPECT_EQ(std::this_thread::get_id(), caller);
        ++count;
      });
    });
  }
  EXPECT_EQ(count, 500 * 4 * 3);
}

// A call that finds the workers busy runs alone. They may be free again when it makes a nested
// call, which then may use them. So nothing is asserted about who runs a nested unit here.
TEST(ThreadPool, CallsFromSeveralThreadsAndNestedCallsAllFinish) {
  ThreadPool pool(3);
  std::atomic<int64_t> count{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        std::atomic<int> done_in_call{0};
        pool.ParallelFor(4, [&](int64_t, int) {
          std::atomic<int> done_in_nested_call{0};
          pool.ParallelFor(3, [&](int64_t, int worker) {
            EXPECT_LT(worker, 3);
            ++done_in_nested_call;
          });
          EXPECT_EQ(done_in_nested_call, 3);  // the call returned, so all of its units are done
          ++done_in_call;
          ++count;
        });
        EXPECT_EQ(done_in_call, 4);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(count, 4 * 500 * 4);
}

TEST(ThreadPool, ManyPoolsStartAndStop) {
  for (int round = 0; round < 100; ++round) {
    ThreadPool pool(4);
    std::atomic<int> count{0};
    if (round % 2 == 0) pool.ParallelFor(4, [&](int64_t, int) { ++count; });
    EXPECT_EQ(count, round % 2 == 0 ? 4 : 0);
  }
}

}  // namespace
}  // namespace baton
