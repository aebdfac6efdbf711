#include "model/rank_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <set>
#include <thread>
#include <vector>

namespace baton {
namespace {

TEST(RankThreads, EveryRankRunsAtTheSameTimeOnItsOwnThread) {
  constexpr size_t kRanks = 4;
  RankThreads threads(kRanks);
  std::vector<std::set<std::thread::id>> seen(kRanks);
  std::barrier all(kRanks);  // would block for ever if a thread served two ranks
  for (int run = 0; run < 50; ++run) {
    threads.Run([&](size_t rank) {
      all.arrive_and_wait();
      seen[rank].insert(std::this_thread::get_id());
    });
  }
  std::set<std::thread::id> distinct;
  for (const auto& ids : seen) {
    EXPECT_EQ(ids.size(), 1u);
    distinct.insert(ids.begin(), ids.end());
  }
  EXPECT_EQ(distinct.size(), kRanks);
  EXPECT_EQ(*seen[0].begin(), std::this_thread::get_id());
}

TEST(RankThreads, RunReturnsWhenAllRanksHave) {
  RankThreads threads(3);
  std::atomic<int> returned = 0;
  for (int run = 1; run <= 50; ++run) {
    threads.Run([&](size_t) { ++returned; });
    EXPECT_EQ(returned, 3 * run);
  }
}

TEST(RankThreads, OneRankNeedsNoThread) {
  RankThreads threads(1);
  size_t ran = 7;
  threads.Run([&](size_t rank) { ran = rank; });
  EXPECT_EQ(ran, 0u);
}

}  // namespace
}  // namespace baton
