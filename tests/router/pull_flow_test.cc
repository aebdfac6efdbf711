#include "router/pull_flow.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

const absl::Status kOk;

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
