#include "engine/step_demand.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(StepDemand, EndsBehindTheLastChunkThatSomebodyWants) {
  ManualClock clock;
  PendingCancellations pending;
  StepDemand demand({{.request = 1}, {.request = 2}, {.request = 3}}, &pending, &clock);
  EXPECT_EQ(demand.Update(), 3);
  pending.Add(2);
  EXPECT_EQ(demand.Update(), 3) << "somebody behind it is wanted";
  EXPECT_EQ(demand.WhyUnwanted(1).code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(demand.WhyUnwanted(2).ok());
  pending.Add(3);
  EXPECT_EQ(demand.wanted(), 3) << "nobody looked";
  EXPECT_EQ(demand.Update(), 1);
  EXPECT_EQ(demand.wanted(), 1);
  pending.Remove(2);
  pending.Remove(3);
  EXPECT_EQ(demand.Update(), 1) << "what was left undone stays so";
  EXPECT_EQ(demand.WhyUnwanted(1).code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(demand.WhyUnwanted(0).ok());
  pending.Add(1);
  EXPECT_EQ(demand.Update(), 0);
  EXPECT_EQ(demand.Update(), 0);
}

TEST(StepDemand, ADeadlineThatPassesIsSeenWithoutAnybodyTelling) {
  ManualClock clock;
  const int64_t now_us = clock.NowUs();
  PendingCancellations pending;
  StepDemand demand({{.request = 1, .deadline_us = now_us + 300},
                     {.request = 2, .deadline_us = now_us + 200},
                     {.request = 3, .deadline_us = now_us + 100}},
                    &pending, &clock);
  EXPECT_EQ(demand.Update(), 3);
  clock.AdvanceUs(100);
  EXPECT_EQ(demand.Update(), 2);
  clock.AdvanceUs(200);
  EXPECT_EQ(demand.Update(), 0);
  for (const int32_t chunk : {0, 1, 2}) {
    EXPECT_EQ(demand.WhyUnwanted(chunk).code(), absl::StatusCode::kDeadlineExceeded);
  }
}

TEST(StepDemand, WithoutABoardOnlyDeadlinesEndIt) {
  ManualClock clock;
  StepDemand demand({{.request = 1}}, nullptr, &clock);
  EXPECT_EQ(demand.Update(), 1);
  EXPECT_TRUE(demand.WhyUnwanted(0).ok());
}

}  // namespace
}  // namespace baton
