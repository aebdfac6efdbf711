#include "router/request_flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/router/route_plans.h"

namespace baton {
namespace {

using Kind = FlowAction::Kind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RequestFlow, ARemotePrefillTakesTheWholePath) {
  RequestFlow flow(3, 2);
  EXPECT_THAT(Kinds(flow.Start()), ElementsAre(Kind::kChooseRoute));
  const auto opened = flow.OnRoute(Remote());
  EXPECT_THAT(Kinds(opened), ElementsAre(Kind::kSendStarted, Kind::kOpenDecode));
  EXPECT_TRUE(opened[1].remote_prefill);
  EXPECT_THAT(Kinds(flow.OnTicket(1)), ElementsAre(Kind::kSendPrefill));
  EXPECT_THAT(Kinds(flow.OnPrefillDone(1)), IsEmpty());
  EXPECT_THAT(Kinds(flow.OnTokens(1)), ElementsAre(Kind::kForwardTokens));
  EXPECT_THAT(Kinds(flow.OnDecodeFinished(1)), ElementsAre(Kind::kCancelDecode, Kind::kFinish));
  EXPECT_TRUE(flow.ended());
}

TEST(RequestFlow, ALocalPrefillNeedsNoTicket) {
  RequestFlow flow(3, 2);
  flow.Start();
  EXPECT_FALSE(flow.OnRoute(Local())[1].remote_prefill);
  EXPECT_THAT(Kinds(flow.OnTokens(1)), ElementsAre(Kind::kForwardTokens));
  EXPECT_THAT(Kinds(flow.OnDecodeFinished(1)), ElementsAre(Kind::kCancelDecode, Kind::kFinish));
}

TEST(RequestFlow, ChoicesEndOneAfterTheOther) {
  RequestFlow flow(3, 2);
  flow.Start();
  flow.OnRoute(Remote());
  flow.OnTicket(1);
  flow.OnTokens(1);
  EXPECT_THAT(Kinds(flow.OnChoiceFinished(1)), ElementsAre(Kind::kForwardFinished));
  EXPECT_TRUE(flow.report_pending());
  flow.OnPrefillDone(1);
  EXPECT_FALSE(flow.report_pending());
  EXPECT_THAT(Kinds(flow.OnChoiceFinished(1)), ElementsAre(Kind::kForwardFinished));
  EXPECT_THAT(Kinds(flow.OnDecodeFinished(1)), ElementsAre(Kind::kCancelDecode, Kind::kFinish));
  EXPECT_THAT(Kinds(flow.OnChoiceFinished(1)), IsEmpty());
}

// The end of a choice is a part of the answer, so the next worker resumes after it.
TEST(RequestFlow, TheEndOfAChoiceIsAPartOfTheAnswer) {
  RequestFlow flow(3, 2);
  flow.Start();
  flow.OnRoute(Local());
  flow.OnChoiceFinished(1);
  EXPECT_THAT(Kinds(flow.OnDecodeFailed(1, absl::UnavailableError("lost"))),
              ElementsAre(Kind::kChooseRoute));
  EXPECT_TRUE(flow.resumes());
  EXPECT_EQ(flow.lost_workers(), 1);
}

// Only the failed prefill tells the decode worker that no KV comes for the other choices.
TEST(RequestFlow, TokensOfAResumedChoiceDoNotImplyThatThePromptHasArrived) {
  RequestFlow flow(3, 2);
  flow.Start();
  flow.OnRoute(Local());
  flow.OnTokens(1);
  flow.OnDecodeFailed(1, absl::UnavailableError("lost"));
  flow.OnRoute(Remote());
  flow.OnTicket(2);
  flow.OnChoiceFinished(2);
  EXPECT_THAT(Kinds(flow.OnPrefillFailed(2, absl::AbortedError("the hand-off failed"))),
              ElementsAre(Kind::kPrefillLocally));
}

TEST(RequestFlow, AFailedPrefillIsHandedToTheDecodeWorker) {
  RequestFlow flow(3, 2);
  flow.Start();
  flow.OnRoute(Remote());
  flow.OnTicket(1);
  EXPECT_THAT(Kinds(flow.OnPrefillFailed(1, absl::InternalError("x"))),
              ElementsAre(Kind::kPrefillLocally));
  EXPECT_THAT(Kinds(flow.OnPrefillLocallyDone(1, absl::NotFoundError("complete"))), IsEmpty());
  flow.OnTokens(1);
  EXPECT_THAT(Kinds(flow.OnDecodeFinished(1)), ElementsAre(Kind::kCancelDecode, Kind::kFinish));
}

TEST(RequestFlow, WithoutAPrefillTheRequestIsUnavailableUnlessItsDeadlinePassed) {
  for (const auto& [second, answer] :
       {std::pair{absl::InternalError("y"), absl::StatusCode::kUnavailable},
        {absl::DeadlineExceededError("y"), absl::StatusCode::kDeadlineExceeded}}) {
    RequestFlow flow(3, 2);
    flow.Start();
    flow.OnRoute(Remote());
    flow.OnTicket(1);
    flow.OnPrefillFailed(1, absl::InternalError("x"));
    const auto actions = flow.OnPrefillLocallyDone(1, second);
    ASSERT_THAT(Kinds(actions), ElementsAre(Kind::kCancelDecode, Kind::kFail)) << second;
    EXPECT_EQ(actions[1].status.code(), answer) << second;
  }
}

TEST(RequestFlow, ADecodeWorkerThatCannotBeToldToPrefillIsReplaced) {
  RequestFlow flow(3, 2);
  flow.Start();
  flow.OnRoute(Remote());
  flow.OnTicket(1);
  flow.OnPrefillFailed(1, absl::AbortedError("the receiver is gone"));
  EXPECT_THAT(Kinds(flow.OnPrefillLocallyDone(1, absl::UnavailableError("refused"))),
              ElementsAre(Kind::kCancelDecode, Kind::kChooseRoute));
  EXPECT_TRUE(flow.excluded().contains(WorkerNumber(1)));
  flow.OnRoute({.decode = WorkerNumber(3), .prefill = std::nullopt});
  EXPECT_THAT(Kinds(flow.OnDecodeFailed(1, absl::CancelledError("late"))), IsEmpty());
  EXPECT_THAT(Kinds(flow.OnTokens(2)), ElementsAre(Kind::kForwardTokens));
}

TEST(RequestFlow, ARefusalTriesAnotherWorkerAndStartedIsSentOnce) {
  RequestFlow flow(2, 2);
  flow.Start();
  flow.OnRoute(Local());
  EXPECT_THAT(Kinds(flow.OnDecodeFailed(1, absl::ResourceExhaustedError("full"))),
              ElementsAre(Kind::kChooseRoute));
  EXPECT_TRUE(flow.excluded().contains(WorkerNumber(1)));
  EXPECT_THAT(Kinds(flow.OnRoute({.decode = WorkerNumber(3), .prefill = std::nullopt})),
              ElementsAre(Kind::kOpenDecode));
  const auto last = flow.OnDecodeFailed(2, absl::ResourceExhaustedError("full too"));
  ASSERT_THAT(Kinds(last), ElementsAre(Kind::kFail));
  EXPECT_EQ(last[0].status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(RequestFlow, WithoutAnotherWorkerTheRefusalIsTheAnswer) {
  RequestFlow flow(3, 2);
  flow.Start();
  flow.OnRoute(Local());
  flow.OnDecodeFailed(1, absl::ResourceExhaustedError("full"));
  const auto actions = flow.OnNoRoute(absl::UnavailableError("no worker"));
  ASSERT_THAT(Kinds(actions), ElementsAre(Kind::kFail));
  EXPECT_EQ(actions[0].status.message(), "full");
}

TEST(RequestFlow, AnAnswerContinuesOnAnotherWorkerWhenItsWorkerIsLost) {
  for (const absl::Status& death :
       {absl::UnavailableError("gone"), absl::CancelledError("ending"), absl::OkStatus()}) {
    RequestFlow flow(1, 2);
    flow.Start();
    flow.OnRoute(Remote());
    flow.OnTicket(1);
    EXPECT_FALSE(flow.resumes());
    flow.OnTokens(1);
    flow.OnPrefillDone(1);
    EXPECT_THAT(Kinds(flow.OnDecodeFailed(1, death)), ElementsAre(Kind::kChooseRoute)) << death;
    EXPECT_TRUE(flow.resumes());
    EXPECT_TRUE(flow.excluded().contains(WorkerNumber(1)));
    const auto opened = flow.OnRoute({.decode = WorkerNumber(3), .prefill = WorkerNumber(2)});
    ASSERT_THAT(Kinds(opened), ElementsAre(Kind::kOpenDecode))
        << "the client already has `started`";
    EXPECT_EQ(opened[0].attempt, 2);
    EXPECT_THAT(Kinds(flow.OnTicket(2)), ElementsAre(Kind::kSendPrefill));
    // If a prefill fails before this worker's first token, the worker computes the prompt.
    EXPECT_THAT(Kinds(flow.OnPrefillFailed(2, absl::UnavailableError("gone"))),
                ElementsAre(Kind::kPrefillLocally));
    EXPECT_THAT(Kinds(flow.OnTokens(1)), IsEmpty()) << "an event of the lost worker";
    EXPECT_THAT(Kinds(flow.OnTokens(2)), ElementsAre(Kind::kForwardTokens));
    EXPECT_THAT(Kinds(flow.OnDecodeFinished(2)), ElementsAre(Kind::kCancelDecode, Kind::kFinish));
  }
}

TEST(RequestFlow, ALostWorkersPrefillIsCancelledBeforeTheAnswerContinues) {
  RequestFlow flow(1, 1);
  flow.Start();
  flow.OnRoute(Remote());
  flow.OnTicket(1);
  flow.OnTokens(1);
  EXPECT_THAT(Kinds(flow.OnDecodeFailed(1, absl::UnavailableError("gone"))),
              ElementsAre(Kind::kCancelPrefill, Kind::kChooseRoute));
}

TEST(RequestFlow, ResumptionsAreLimited) {
  RequestFlow flow(1, 2);
  flow.Start();
  flow.OnRoute(Local());
  for (int32_t attempt = 1; attempt <= 2; ++attempt) {
    flow.OnTokens(attempt);
    EXPECT_THAT(Kinds(flow.OnDecodeFailed(attempt, absl::UnavailableError("killed"))),
                ElementsAre(Kind::kChooseRoute));
    flow.OnRoute({.decode = WorkerNumber(10 + attempt), .prefill = std::nullopt});
  }
  flow.OnTokens(3);
  const auto actions = flow.OnDecodeFailed(3, absl::UnavailableError("killed"));
  ASSERT_THAT(Kinds(actions), ElementsAre(Kind::kFail));
  EXPECT_EQ(actions[0].status.code(), absl::StatusCode::kUnavailable);
}

TEST(RequestFlow, AnErrorOfTheAnswerItselfIsNotResumed) {
  for (const absl::Status& error :
       {absl::InternalError("a NaN"),
        absl::DeadlineExceededError("the request's deadline has passed")}) {
    RequestFlow flow(3, 2);
    flow.Start();
    flow.OnRoute(Local());
    flow.OnTokens(1);
    const auto actions = flow.OnDecodeFailed(1, error);
    ASSERT_THAT(Kinds(actions), ElementsAre(Kind::kFail)) << error;
    EXPECT_EQ(actions[0].status, error);
  }
}

TEST(RequestFlow, APassedDeadlineHasOneMessage) {
  RequestFlow flow(3, 2);
  flow.Start();
  flow.OnRoute(Local());
  const auto actions = flow.OnDecodeFailed(1, absl::DeadlineExceededError("Deadline Exceeded"));
  ASSERT_THAT(Kinds(actions), ElementsAre(Kind::kFail));
  EXPECT_EQ(actions[0].status, absl::DeadlineExceededError("the request's deadline has passed"));
}

// A worker's refusal to resume an answer is not the request's fault, because another worker had
// accepted it.
TEST(RequestFlow, AnAnswerThatNoWorkerContinuesIsUnavailable) {
  for (const absl::Status& refusal :
       {absl::ResourceExhaustedError("full"), absl::InvalidArgumentError("a smaller pool")}) {
    RequestFlow flow(2, 2);
    flow.Start();
    flow.OnRoute(Local());
    flow.OnTokens(1);
    flow.OnDecodeFailed(1, absl::UnavailableError("gone"));
    flow.OnRoute({.decode = WorkerNumber(2), .prefill = std::nullopt});
    EXPECT_THAT(Kinds(flow.OnDecodeFailed(2, refusal)), ElementsAre(Kind::kChooseRoute));
    EXPECT_TRUE(flow.excluded().contains(WorkerNumber(2)));
    const auto actions = flow.OnNoRoute(absl::UnavailableError("no worker"));
    ASSERT_THAT(Kinds(actions), ElementsAre(Kind::kFail));
    EXPECT_EQ(actions[0].status.code(), absl::StatusCode::kUnavailable) << refusal;
    EXPECT_THAT(actions[0].status.message(), ::testing::HasSubstr(refusal.message()));
  }
}

// A worker without room when the request was new may have room now.
TEST(RequestFlow, AfterALostWorkerRefusingWorkersAreTriedAgain) {
  RequestFlow flow(3, 2);
  flow.Start();
  flow.OnRoute(Local());
  flow.OnDecodeFailed(1, absl::ResourceExhaustedError("full"));
  flow.OnRoute({.decode = WorkerNumber(3), .prefill = std::nullopt});
  flow.OnTokens(2);
  flow.OnDecodeFailed(2, absl::UnavailableError("gone"));
  EXPECT_FALSE(flow.excluded().contains(WorkerNumber(1)));
  EXPECT_TRUE(flow.excluded().contains(WorkerNumber(3)));
}

// A worker that refuses hand-offs may still queue prompts that it computes itself.
TEST(RequestFlow, AnInvalidRequestIsNotRetried) {
  RequestFlow flow(3, 2);
  flow.Start();
  flow.OnRoute(Local());
  const auto actions = flow.OnDecodeFailed(1, absl::InvalidArgumentError("top_p"));
  ASSERT_THAT(Kinds(actions), ElementsAre(Kind::kFail));
  EXPECT_EQ(actions[0].status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(RequestFlow, ADecodeFailureCancelsThePrefill) {
  RequestFlow flow(1, 2);
  flow.Start();
  flow.OnRoute(Remote());
  flow.OnTicket(1);
  EXPECT_THAT(Kinds(flow.OnDecodeFailed(1, absl::UnavailableError("gone"))),
              ElementsAre(Kind::kCancelPrefill, Kind::kFail));
}

TEST(RequestFlow, TheReportIsAwaitedButNotForEver) {
  for (const bool overdue : {false, true}) {
    RequestFlow flow(1, 2);
    flow.Start();
    flow.OnRoute(Remote());
    flow.OnTicket(1);
    flow.OnTokens(1);
    EXPECT_THAT(Kinds(flow.OnDecodeFinished(1)),
                ElementsAre(Kind::kCancelDecode, Kind::kAwaitReport));
    if (overdue) {
      EXPECT_THAT(Kinds(flow.OnReportOverdue()), ElementsAre(Kind::kCancelPrefill, Kind::kFinish));
    } else {
      EXPECT_THAT(Kinds(flow.OnPrefillDone(1)), ElementsAre(Kind::kFinish));
      EXPECT_THAT(Kinds(flow.OnReportOverdue()), IsEmpty());
    }
  }
}

TEST(RequestFlow, AClientThatLeavesCancelsBothWorkers) {
  RequestFlow flow(1, 2);
  flow.Start();
  flow.OnRoute(Remote());
  flow.OnTicket(1);
  EXPECT_THAT(Kinds(flow.OnClientGone(absl::CancelledError("bye"))),
              ElementsAre(Kind::kCancelDecode, Kind::kCancelPrefill, Kind::kFail));
  EXPECT_THAT(Kinds(flow.OnClientGone(absl::CancelledError("bye"))), IsEmpty());
}

TEST(RequestFlow, APullComesBeforeTheWorkersGetTheRequest) {
  RequestFlow flow(3, 2);
  flow.Start();
  const auto pulling = flow.OnRoute(Pulling());
  EXPECT_THAT(Kinds(pulling), ElementsAre(Kind::kSendStarted, Kind::kPull));
  EXPECT_EQ(pulling[1].worker, WorkerNumber(2)) << "the worker that computes the prompt receives";
  EXPECT_EQ(flow.attempt(), 1);
  EXPECT_THAT(Kinds(flow.OnTokens(1)), IsEmpty());
  EXPECT_THAT(Kinds(flow.OnPullEnded(0)), IsEmpty()) << "an event of an earlier attempt";
  const auto opened = flow.OnPullEnded(1);
  EXPECT_THAT(Kinds(opened), ElementsAre(Kind::kOpenDecode));
  EXPECT_TRUE(opened[0].remote_prefill);
  EXPECT_EQ(opened[0].attempt, 1);
  EXPECT_THAT(Kinds(flow.OnPullEnded(1)), IsEmpty());
  EXPECT_THAT(Kinds(flow.OnTicket(1)), ElementsAre(Kind::kSendPrefill));
}

TEST(RequestFlow, AClientThatLeavesDuringAPullCancelsOnlyThePull) {
  RequestFlow flow(3, 2);
  flow.Start();
  flow.OnRoute(Pulling());
  EXPECT_THAT(Kinds(flow.OnClientGone(absl::CancelledError("bye"))),
              ElementsAre(Kind::kCancelPull, Kind::kFail));
  EXPECT_THAT(Kinds(flow.OnPullEnded(1)), IsEmpty());
}

TEST(RequestFlow, AResumedRequestMayPullToo) {
  RequestFlow flow(3, 2);
  flow.Start();
  flow.OnRoute(Local());
  flow.OnTokens(1);
  EXPECT_THAT(Kinds(flow.OnDecodeFailed(1, absl::UnavailableError("lost"))),
              ElementsAre(Kind::kChooseRoute));
  EXPECT_THAT(Kinds(flow.OnRoute(Pulling())), ElementsAre(Kind::kPull));
  EXPECT_THAT(Kinds(flow.OnDecodeFailed(1, absl::UnavailableError("lost"))), IsEmpty());
  EXPECT_THAT(Kinds(flow.OnPullEnded(2)), ElementsAre(Kind::kOpenDecode));
}

}  // namespace
}  // namespace baton
