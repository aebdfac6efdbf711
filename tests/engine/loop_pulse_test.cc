#include "engine/loop_pulse.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(LoopPulse, ALoopThatWorksMustBeat) {
  ManualClock clock;
  LoopPulse pulse(&clock, 10'000'000);
  pulse.Beat();
  clock.AdvanceUs(10'000'000);
  EXPECT_TRUE(pulse.Check().ok());
  clock.AdvanceUs(1'000);
  const absl::Status status = pulse.Check();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(status.message(),
            "the engine has not come on for 10001 ms; an operation takes 10000 ms at most "
            "(--op-stall-ms)");
  pulse.Beat();
  EXPECT_TRUE(pulse.Check().ok()) << "it has come back";
}

TEST(LoopPulse, ALoopThatRestsNeedNot) {
  ManualClock clock;
  LoopPulse pulse(&clock, 10'000'000);
  clock.AdvanceUs(100'000'000);
  EXPECT_TRUE(pulse.Check().ok()) << "it has not begun";
  pulse.Beat();
  pulse.Rest();
  clock.AdvanceUs(100'000'000);
  EXPECT_TRUE(pulse.Check().ok());
}

}  // namespace
}  // namespace baton
