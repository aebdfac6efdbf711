#include "kvtransfer/protocol/send_queue.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace baton {
namespace {

// Takes `blocks` blocks from transfers that never run out of blocks.
std::vector<uint64_t> TakeAll(SendQueue& queue, const std::map<uint64_t, int32_t>& priorities,
                              int blocks) {
  std::vector<uint64_t> taken;
  for (int i = 0; i < blocks; ++i) {
    const uint64_t next = queue.Next();
    taken.push_back(queue.Take());
    EXPECT_EQ(taken.back(), next);
    queue.Add(taken.back(), priorities.at(taken.back()));
  }
  return taken;
}

TEST(SendQueue, EqualPrioritiesTakeTurnsInOrderOfArrival) {
  SendQueue queue;
  EXPECT_TRUE(queue.empty());
  for (const uint64_t id : {7, 3, 5}) queue.Add(id, 0);
  const std::map<uint64_t, int32_t> priorities{{7, 0}, {3, 0}, {5, 0}};
  EXPECT_EQ(TakeAll(queue, priorities, 10), (std::vector<uint64_t>{7, 3, 5, 7, 3, 5, 7, 3, 5, 7}));
}

TEST(SendQueue, AHigherPriorityGoesFirstEvenIfAddedLast) {
  SendQueue queue;
  queue.Add(1, -5);
  queue.Add(2, 0);
  queue.Add(3, 100);
  EXPECT_EQ(queue.Take(), 3u);
  EXPECT_EQ(queue.Take(), 2u);
  EXPECT_EQ(queue.Take(), 1u);
  EXPECT_TRUE(queue.empty());
}

TEST(SendQueue, OneBlockInEightGoesToThePriorityThatWaitedLongest) {
  SendQueue queue;
  const std::map<uint64_t, int32_t> priorities{{1, 0}, {2, -1}, {3, -2}};
  for (const auto& [id, priority] : priorities) queue.Add(id, priority);
  const std::vector<uint64_t> taken = TakeAll(queue, priorities, 32);
  const std::vector<uint64_t> others{taken[7], taken[15], taken[23], taken[31]};
  EXPECT_EQ(others, (std::vector<uint64_t>{2, 3, 2, 3}));
  EXPECT_EQ(std::count(taken.begin(), taken.end(), 1u), 28);
}

TEST(SendQueue, RemovedTransfersAreNotTaken) {
  SendQueue queue;
  queue.Add(1, 1);
  queue.Add(2, 0);
  queue.Add(3, 0);
  queue.Remove(1, 1);
  queue.Remove(2, 0);
  queue.Remove(2, 0);
  queue.Remove(9, 4);
  EXPECT_EQ(queue.Take(), 3u);
  EXPECT_TRUE(queue.empty());
}

// Transfers come, wait and leave in an order that a seed determines. None waits longer than the
// rule allows.
TEST(SendQueue, NoTransferStarves) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  constexpr int32_t kPriorities = 5;
  SendQueue queue;
  std::map<uint64_t, int32_t> waiting;  // transfer to priority
  // For each waiting priority: blocks of others since its last one.
  std::map<int32_t, uint64_t> gone_without;
  uint64_t next = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (waiting.size() < 12 && random() % 3 == 0) {
      const auto priority = static_cast<int32_t>(random() % kPriorities);
      queue.Add(++next, priority);
      waiting.emplace(next, priority);
      gone_without.try_emplace(priority, 0);
    }
    if (waiting.empty()) continue;
    const uint64_t id = queue.Take();
    ASSERT_TRUE(waiting.contains(id));
    const int32_t priority = waiting.at(id);
    for (auto& [one, blocks] : gone_without) {
      blocks = one == priority ? 0 : blocks + 1;
      ASSERT_LE(blocks, SendQueue::kOthersEvery * kPriorities);
    }
    if (random() % 10 == 0) {
      waiting.erase(id);
    } else {
      queue.Add(id, priority);
    }
    const bool others = std::any_of(waiting.begin(), waiting.end(),
                                    [&](const auto& one) { return one.second == priority; });
    if (!others) gone_without.erase(priority);
  }
}

}  // namespace
}  // namespace baton
