#include "rpc/concurrency_limit.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <utility>

namespace baton {
namespace {

TEST(ConcurrencyLimit, AdmitsUpToItsLimitAndReusesFreedSlots) {
  ConcurrencyLimit limit(2);
  absl::StatusOr<ConcurrencyLimit::Slot> first = limit.Enter();
  {
    absl::StatusOr<ConcurrencyLimit::Slot> second = limit.Enter();
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(limit.Enter().status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(limit.active(), 2);
  }
  EXPECT_EQ(limit.active(), 1);
  EXPECT_TRUE(limit.Enter().ok());
}

TEST(ConcurrencyLimit, AMovedSlotCountsOnce) {
  ConcurrencyLimit limit(4);
  ConcurrencyLimit::Slot slot = *limit.Enter();
  ConcurrencyLimit::Slot moved = std::move(slot);
  EXPECT_EQ(limit.active(), 1);
  { const ConcurrencyLimit::Slot ends = std::move(moved); }
  EXPECT_EQ(limit.active(), 0);
}

TEST(ConcurrencyLimit, AfterCloseNoCallEntersAndTheWaitEndsWithTheLastCall) {
  ConcurrencyLimit limit(4);
  std::optional<ConcurrencyLimit::Slot> slot(*limit.Enter());
  limit.Close();
  EXPECT_EQ(limit.Enter().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(limit.WaitUntilIdle(1));
  std::thread leaver([&slot] { slot.reset(); });
  EXPECT_TRUE(limit.WaitUntilIdle(20'000));
  leaver.join();
}

}  // namespace
}  // namespace baton
