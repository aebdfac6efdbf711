#include "engine/loop_watchdog.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(LoopWatchdog, AnArmedWatchdogFiresUnlessItIsFed) {
  ManualClock clock;
  LoopWatchdog watchdog(&clock, 10'000'000);
  watchdog.Feed();
  clock.AdvanceUs(10'000'000);
  EXPECT_TRUE(watchdog.Check().ok());
  clock.AdvanceUs(1'000);
  const absl::Status status = watchdog.Check();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(
      status.message(),
      "the engine loop has made no progress for 10001 ms; the limit for an operation is 10000 ms "
      "(--op-stall-ms)");
  watchdog.Feed();
  EXPECT_TRUE(watchdog.Check().ok()) << "the loop is alive again";
}

TEST(LoopWatchdog, ADisarmedWatchdogNeverFires) {
  ManualClock clock;
  LoopWatchdog watchdog(&clock, 10'000'000);
  clock.AdvanceUs(100'000'000);
  EXPECT_TRUE(watchdog.Check().ok()) << "not armed yet";
  watchdog.Feed();
  watchdog.Disarm();
  clock.AdvanceUs(100'000'000);
  EXPECT_TRUE(watchdog.Check().ok());
}

}  // namespace
}  // namespace baton
