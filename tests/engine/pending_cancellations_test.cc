#include "engine/pending_cancellations.h"

#include <gtest/gtest.h>

#include <thread>

namespace baton {
namespace {

TEST(PendingCancellations, HoldsARequestUntilTheLoopHasTakenIt) {
  PendingCancellations pending;
  EXPECT_EQ(pending.additions(), 0);
  pending.Add(7);
  EXPECT_EQ(pending.additions(), 1);
  EXPECT_TRUE(pending.Contains(7));
  EXPECT_FALSE(pending.Contains(8));
  pending.Remove(7);
  EXPECT_FALSE(pending.Contains(7));
  EXPECT_EQ(pending.additions(), 1);
}

TEST(PendingCancellations, KeepsTheTimeOfTheFirstCancellation) {
  PendingCancellations pending;
  pending.Add(7, 100);
  pending.Add(7, 200);
  pending.Add(8);
  EXPECT_EQ(pending.Remove(7), 100);
  EXPECT_EQ(pending.Remove(7), std::nullopt) << "it is taken";
  EXPECT_EQ(pending.Remove(8), std::nullopt) << "its time is unknown";
}

TEST(PendingCancellations, AThreadThatSeesACountFindsItsRequest) {
  constexpr RequestHandle kCount = 1000;
  PendingCancellations pending;
  std::thread adder([&] {
    for (RequestHandle handle = 1; handle <= kCount; ++handle) pending.Add(handle);
  });
  for (uint64_t seen = 0; seen < kCount;) {
    seen = pending.additions();
    if (seen == 0) continue;
    EXPECT_TRUE(pending.Contains(seen));
  }
  adder.join();
}

}  // namespace
}  // namespace baton
