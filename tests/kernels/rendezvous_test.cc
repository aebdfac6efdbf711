#include "kernels/cpu/rendezvous.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

namespace baton {
namespace {

void OnThreads(int32_t count, const std::function<void(int32_t)>& run) {
  std::vector<std::thread> threads;
  for (int32_t i = 0; i < count; ++i) threads.emplace_back([&run, i] { run(i); });
  for (std::thread& thread : threads) thread.join();
}

// The last member of a round adds what all have written. Nobody writes meanwhile.
TEST(Rendezvous, OneMemberWorksForAllWhileTheOthersWait) {
  constexpr int32_t kMembers = 4;
  constexpr int kRounds = 30;
  for (const int spins : {0, 100}) {
    Rendezvous meeting(kMembers, spins);
    std::vector<int> numbers(kMembers, 0);
    int sum = 0;
    int calls = 0;
    OnThreads(kMembers, [&](int32_t member) {
      for (int round = 1; round <= kRounds; ++round) {
        numbers[member] = round * (member + 1);
        ASSERT_TRUE(meeting.Arrive([&] {
          ++calls;
          sum = std::accumulate(numbers.begin(), numbers.end(), 0);
          std::fill(numbers.begin(), numbers.end(), -1);
        }));
        ASSERT_EQ(sum, round * 10);
        ASSERT_EQ(numbers[member], -1);
        ASSERT_TRUE(meeting.Arrive([] {}));  // all have read the sum
      }
    });
    EXPECT_EQ(calls, kRounds);
  }
}

TEST(Rendezvous, OneMemberNeverWaits) {
  Rendezvous meeting(1, 0);
  int calls = 0;
  for (int round = 0; round < 3; ++round) EXPECT_TRUE(meeting.Arrive([&] { ++calls; }));
  meeting.Break();
  EXPECT_FALSE(meeting.Arrive([&] { ++calls; }));
  EXPECT_EQ(calls, 3);
}

// A member that left early would overwrite what the work still reads.
TEST(Rendezvous, ABreakDuringTheWorkEndsTheNextRound) {
  Rendezvous meeting(2, 0);
  std::atomic<int> working{0};
  OnThreads(2, [&](int32_t) {
    EXPECT_TRUE(meeting.Arrive([&] {
      working = 1;
      meeting.Break();
      for (int i = 0; i < 100; ++i) std::this_thread::yield();
      working = 0;
    }));
    EXPECT_EQ(working, 0);
    EXPECT_FALSE(meeting.Arrive([] {}));
  });
}

TEST(Rendezvous, BreakFreesTheMembersThatWaitAndThoseThatComeLater) {
  Rendezvous meeting(3, 0);
  std::atomic<int> freed{0};
  std::thread breaker;
  OnThreads(2, [&](int32_t member) {
    if (member == 0) {
      std::this_thread::yield();
      breaker = std::thread([&] { meeting.Break(); });
    }
    EXPECT_FALSE(meeting.Arrive([] {}));
    ++freed;
  });
  breaker.join();
  EXPECT_EQ(freed, 2);
  EXPECT_FALSE(meeting.Arrive([] {}));
}

TEST(Rendezvous, AllMembersOfARoundAgreeWhetherItCompleted) {
  constexpr int32_t kMembers = 3;
  for (int attempt = 0; attempt < 20; ++attempt) {
    Rendezvous meeting(kMembers, attempt % 2 == 0 ? 0 : 50);
    std::vector<int> completed(kMembers + 1, 0);
    OnThreads(kMembers + 1, [&](int32_t member) {
      if (member == kMembers) {
        for (int i = 0; i < attempt; ++i) std::this_thread::yield();
        return meeting.Break();
      }
      while (completed[member] < 30 && meeting.Arrive([] {})) ++completed[member];
    });
    EXPECT_EQ(completed[0], completed[1]);
    EXPECT_EQ(completed[0], completed[2]);
  }
}

}  // namespace
}  // namespace baton
