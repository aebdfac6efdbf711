#include "worker_rpc/registration.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

const absl::Status kOk;

TEST(Registration, SendsAHeartbeatEverySecondAndSoonerAfterSilence) {
  Registration registration;
  Registration::Heartbeat first = registration.Next();
  EXPECT_FALSE(first.leaving);
  EXPECT_EQ(first.timeout_ms, 1000);
  EXPECT_EQ(registration.OnAnswer(kOk, kOk).pause_ms, 1000);
  registration.Next();
  EXPECT_EQ(registration.OnAnswer(absl::DeadlineExceededError("no answer"), kOk).pause_ms, 200);
  registration.Next();
  EXPECT_EQ(registration.OnAnswer(kOk, kOk).pause_ms, 1000);
}

TEST(Registration, ARefusalCountsAsAnAnswer) {
  Registration registration;
  registration.Next();
  const auto outcome =
      registration.OnAnswer(kOk, absl::AlreadyExistsError("that id is epoch 7's, heard 1 s ago"));
  EXPECT_EQ(outcome.pause_ms, 1000);
  EXPECT_EQ(outcome.trouble, "that id is epoch 7's, heard 1 s ago");
}

TEST(Registration, TroubleIsReportedOncePerChange) {
  Registration registration;
  const auto trouble = [&](const absl::Status& call, const absl::Status& accepted) {
    registration.Next();
    return registration.OnAnswer(call, accepted).trouble;
  };
  EXPECT_EQ(trouble(kOk, kOk), std::nullopt) << "no trouble from the start";
  EXPECT_EQ(trouble(kOk, absl::AbortedError("heard 1 s ago")), "heard 1 s ago");
  EXPECT_EQ(trouble(kOk, absl::AbortedError("heard 2 s ago")), std::nullopt);
  EXPECT_EQ(trouble(absl::UnavailableError("refused"), kOk), "refused");
  EXPECT_EQ(trouble(absl::UnavailableError("refused"), kOk), std::nullopt);
  EXPECT_EQ(trouble(kOk, kOk), "") << "registered again";
  EXPECT_EQ(trouble(kOk, kOk), std::nullopt);
}

TEST(Registration, LeavingSendsOneGoodbyeForAnyAnswer) {
  for (const absl::Status& answer : {kOk, absl::Status(absl::UnavailableError("gone"))}) {
    Registration registration;
    registration.Next();
    registration.OnAnswer(kOk, kOk);
    registration.Leave();
    const Registration::Heartbeat goodbye = registration.Next();
    EXPECT_TRUE(goodbye.leaving);
    EXPECT_EQ(goodbye.timeout_ms, 500);
    EXPECT_EQ(registration.OnAnswer(answer, kOk).pause_ms, std::nullopt);
  }
}

TEST(Registration, LeavingDuringAHeartbeatStillSendsTheGoodbye) {
  Registration registration;
  registration.Next();
  registration.Leave();
  EXPECT_EQ(registration.OnAnswer(absl::UnavailableError("gone"), kOk).pause_ms, 0)
      << "the goodbye follows at once";
  EXPECT_TRUE(registration.Next().leaving);
  EXPECT_EQ(registration.OnAnswer(kOk, kOk).pause_ms, std::nullopt);
}

}  // namespace
}  // namespace baton
