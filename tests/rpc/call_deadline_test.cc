#include "rpc/call_deadline.h"

#include <gtest/gtest.h>

#include <chrono>

#include "rpc/channel.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

TEST(CallDeadline, IsPassedOnceItsClockSaysSo) {
  ManualClock clock;
  const CallDeadline deadline(60'000'000, &clock);
  clock.AdvanceUs(59'999'999);
  EXPECT_FALSE(deadline.Passed());
  EXPECT_EQ(deadline.LeftUs(), 1);
  clock.AdvanceUs(1);
  EXPECT_TRUE(deadline.Passed());
  clock.AdvanceUs(5);
  EXPECT_EQ(deadline.LeftUs(), -5);
}

// A later call gets the time left on the steady clock, added to its own time of day. So setting the
// clock in between does not change the time left.
TEST(CallDeadline, EachCallGetsTheTimeThatIsLeftAtItsStart) {
  ManualClock clock;
  const CallDeadline deadline(60'000'000, &clock);
  clock.AdvanceUs(20'000'000);
  const auto before = system_clock::now();
  const auto told = deadline.ForCall();
  const auto after = system_clock::now();
  EXPECT_GE(told, before + milliseconds(40'000));
  EXPECT_LE(told, after + milliseconds(40'000));
  clock.AdvanceUs(50'000'000);
  const auto now = deadline.ForCall();
  EXPECT_LE(now, system_clock::now());
}

TEST(CallDeadline, UsesTheSoonerOfDeadlineAndTimeout) {
  ManualClock clock;
  const CallDeadline deadline(5'000'000, &clock);
  EXPECT_EQ(deadline.Within(2000).LeftUs(), 2'000'000);
  EXPECT_EQ(deadline.Within(9000).LeftUs(), 5'000'000);
  EXPECT_TRUE(deadline.Within(-1).Passed());
}

TEST(CallDeadline, MayBeNone) {
  ManualClock clock;
  const CallDeadline never(CallDeadline::kForEverUs, &clock);
  clock.AdvanceUs(int64_t{1} << 59);
  EXPECT_FALSE(never.Passed());
  EXPECT_EQ(never.LeftUs(), CallDeadline::kForEverUs);
  EXPECT_EQ(never.ForCall(), system_clock::time_point::max());
  EXPECT_EQ(never.Within(2000).LeftUs(), 2'000'000);
}

TEST(CallDeadline, TakesAnyNumberFromTheWire) {
  ManualClock clock;
  EXPECT_FALSE(CallDeadline(INT64_MAX, &clock).Passed());
  const CallDeadline long_ago(INT64_MIN, &clock);
  EXPECT_TRUE(long_ago.Passed());
  const auto now = long_ago.ForCall();
  EXPECT_LE(now, system_clock::now());
}

}  // namespace
}  // namespace baton
