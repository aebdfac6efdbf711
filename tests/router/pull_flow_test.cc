#include "router/pull_flow.h"

#include <gtest/gtest.h>

#include <limits>

namespace baton {
namespace {

const absl::Status kOk;

TEST(PullFlow, APullIsWaitedForAFewTimesWhatItShouldTakeWithALeastAndAMost) {
  RouterOptions options;
  options.pull_patience = 4;
  options.pull_least_ms = 250;
  const auto timeout_ms = [&](int64_t us) {
    return PullTimeoutMs(options, {.from = WorkerNumber(1), .tokens = 16, .us = us});
  };
  EXPECT_EQ(timeout_ms(0), 250);
  EXPECT_EQ(timeout_ms(100'000), 400);
  EXPECT_EQ(timeout_ms(std::numeric_limits<int64_t>::max()), 3'600'000);
}

TEST(PullFlow, TheSourceIsAskedOnceWithTheFirstTicket) {
  PullFlow flow;
  EXPECT_TRUE(flow.OnTicket());
  EXPECT_FALSE(flow.OnTicket());
}

TEST(PullFlow, AnAcceptedSendLeavesTheReceiverToEnd) {
  PullFlow flow;
  flow.OnTicket();
  EXPECT_FALSE(flow.OnSourceAnswered(kOk));
  const PullFlow::Outcome outcome = flow.OnReceiverEnded(kOk);
  EXPECT_TRUE(outcome.status.ok());
  EXPECT_FALSE(outcome.receiver_gone);
  EXPECT_FALSE(outcome.source_gone);
}

TEST(PullFlow, ARefusalOfTheSourceCancelsTheReceiverAndIsTheReason) {
  PullFlow flow;
  flow.OnTicket();
  EXPECT_TRUE(flow.OnSourceAnswered(absl::NotFoundError("not cached here")));
  const PullFlow::Outcome outcome = flow.OnReceiverEnded(absl::CancelledError("cancelled"));
  EXPECT_EQ(outcome.status, absl::NotFoundError("not cached here"));
  EXPECT_FALSE(outcome.receiver_gone);
  EXPECT_FALSE(outcome.source_gone);
}

TEST(PullFlow, LandedBlocksCountAfterTheSourceIsLost) {
  PullFlow flow;
  flow.OnTicket();
  EXPECT_TRUE(flow.OnSourceAnswered(absl::UnavailableError("connection lost")));
  const PullFlow::Outcome outcome = flow.OnReceiverEnded(kOk);
  EXPECT_TRUE(outcome.status.ok());
  EXPECT_TRUE(outcome.source_gone);
}

TEST(PullFlow, AnUnavailableReceiverIsDistinguishedFromAnUnavailableSource) {
  PullFlow flow;
  const PullFlow::Outcome outcome = flow.OnReceiverEnded(absl::UnavailableError("refused"));
  EXPECT_EQ(outcome.status, absl::UnavailableError("refused"));
  EXPECT_TRUE(outcome.receiver_gone);
  EXPECT_FALSE(outcome.source_gone);
}

}  // namespace
}  // namespace baton
