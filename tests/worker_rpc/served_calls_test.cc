#include "worker_rpc/served_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <tuple>
#include <vector>

#include "tests/worker_rpc/recording_engine.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Decode final : public ServedDecode {
 public:
  using ServedDecode::ServedDecode;
  bool takes = true;  // messages
  std::vector<char> sent;
  std::vector<absl::Status> ends;

 protected:
  bool SendTicket(const TransferTicket&) override { return Sent('t'); }
  bool SendTokens(TokenOutput) override { return Sent('o'); }
  bool SendFinish(FinishInfo) override { return Sent('f'); }
  void EndCall(const absl::Status& status) override { ends.push_back(status); }

 private:
  bool Sent(char what) {
    sent.push_back(what);
    return takes;
  }
};

class Prefill final : public ServedPrefill {
 public:
  using ServedPrefill::ServedPrefill;
  std::vector<absl::Status> ends;

 protected:
  void EndCall(const absl::StatusOr<PrefillResult>& result) override {
    ends.push_back(result.status());
  }
};

class Pull final : public ServedPull {
 public:
  using ServedPull::ServedPull;
  int tickets = 0;
  std::vector<absl::Status> ends;

 protected:
  void SendTicket(const TransferTicket&) override { ++tickets; }
  void EndCall(const absl::StatusOr<PullResult>& result) override {
    ends.push_back(result.status());
  }
};

class ServedCallsTest : public ::testing::Test {
 protected:
  std::shared_ptr<Decode> StartDecode(int64_t timeout_ms = 0, int64_t deadline_ms = 0) {
    const auto call = std::make_shared<Decode>(&engine_);
    call->Start(
        limit_,
        [&]() -> absl::StatusOr<GenerateRequest> {
          GenerateRequest request;
          request.timeout_ms = timeout_ms;
          return request;
        },
        deadline_ms, call);
    return call;
  }
  static FinishInfo Finish(bool last) {
    FinishInfo info;
    info.last = last;
    return info;
  }

  RecordingEngine engine_;
  ConcurrencyLimit limit_{1};
};

TEST_F(ServedCallsTest, ADecodeStreamEndsAfterTheEndOfItsLastChoice) {
  const auto call = StartDecode();
  engine_.generate->OnTicket({});
  engine_.generate->OnTokens({});
  engine_.generate->OnFinish(Finish(/*last=*/false));
  EXPECT_THAT(call->ends, IsEmpty());
  engine_.generate->OnFinish(Finish(/*last=*/true));
  EXPECT_THAT(call->sent, ElementsAre('t', 'o', 'f', 'f'));
  EXPECT_THAT(call->ends, ElementsAre(absl::OkStatus()));
  EXPECT_THAT(engine_.cancelled, IsEmpty());
}

TEST_F(ServedCallsTest, TheRequestsErrorEndsTheStream) {
  const auto call = StartDecode();
  engine_.generate->OnError(absl::ResourceExhaustedError("full"));
  EXPECT_THAT(call->ends, ElementsAre(absl::ResourceExhaustedError("full")));
}

TEST_F(ServedCallsTest, AStreamThatAcceptsNoMoreCancelsItsRequestButNotAtItsEnd) {
  for (int message = 0; message < 3; ++message) {
    RecordingEngine engine;
    ConcurrencyLimit limit(1);
    const auto call = std::make_shared<Decode>(&engine);
    call->Start(
        limit, []() -> absl::StatusOr<GenerateRequest> { return GenerateRequest(); }, 0, call);
    call->takes = false;
    if (message == 0) call->OnTicket({});
    if (message == 1) call->OnTokens({});
    if (message == 2) call->OnFinish(Finish(/*last=*/false));
    EXPECT_THAT(engine.cancelled, ElementsAre(engine.last)) << message;
    call->OnFinish(Finish(/*last=*/true));
    EXPECT_THAT(engine.cancelled, ElementsAre(engine.last)) << message;
  }
}

TEST_F(ServedCallsTest, TheEarlierOfRequestTimeoutAndCallDeadlineCounts) {
  for (const auto& [timeout_ms, deadline_ms, expected] :
       {std::tuple(0, 0, 0), {5, 0, 5}, {0, 7, 7}, {5, 7, 5}, {9, 7, 7}}) {
    const auto call = StartDecode(timeout_ms, deadline_ms);
    EXPECT_EQ(engine_.asked.timeout_ms, expected);
    engine_.generate = nullptr;
  }
}

TEST_F(ServedCallsTest, ACallWithoutASlotEndsAndItsRequestIsNotMade) {
  const auto first = StartDecode();
  EXPECT_EQ(limit_.active(), 1);
  const auto second = std::make_shared<Decode>(&engine_);
  bool made = false;
  second->Start(
      limit_,
      [&]() -> absl::StatusOr<GenerateRequest> {
        made = true;
        return GenerateRequest();
      },
      0, second);
  EXPECT_FALSE(made);
  ASSERT_EQ(second->ends.size(), 1u);
  EXPECT_EQ(second->ends[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(engine_.requests, 1);
}

TEST_F(ServedCallsTest, AnInvalidRequestEndsTheCallAndTheEngineDoesNotSeeIt) {
  const auto prefill = std::make_shared<Prefill>(&engine_);
  prefill->Start(
      limit_,
      []() -> absl::StatusOr<PrefillRequest> { return absl::InvalidArgumentError("too long"); },
      prefill);
  EXPECT_THAT(prefill->ends, ElementsAre(absl::InvalidArgumentError("too long")));
  EXPECT_EQ(engine_.requests, 0);
}

TEST_F(ServedCallsTest, ASlotIsHeldUntilTheEngineReleasesTheCall) {
  StartDecode();
  EXPECT_EQ(limit_.active(), 1);
  engine_.generate->OnFinish(Finish(/*last=*/true));
  EXPECT_EQ(limit_.active(), 1);
  engine_.generate = nullptr;
  EXPECT_EQ(limit_.active(), 0);
}

TEST_F(ServedCallsTest, ACancelledCallCancelsItsRequestEvenBeforeItHasAHandle) {
  const auto call = StartDecode();
  call->CancelRequest();
  EXPECT_THAT(engine_.cancelled, ElementsAre(engine_.last));

  RecordingEngine engine;
  ConcurrencyLimit limit(1);
  const auto early = std::make_shared<Prefill>(&engine);
  engine.before_named = [&] { early->CancelRequest(); };
  early->Start(
      limit, []() -> absl::StatusOr<PrefillRequest> { return PrefillRequest(); }, early);
  EXPECT_THAT(engine.cancelled, ElementsAre(engine.last));
  engine.prefill->OnDone(absl::CancelledError("cancelled"));
  EXPECT_THAT(early->ends, ElementsAre(absl::CancelledError("cancelled")));
}

TEST_F(ServedCallsTest, APullReleasesItsSlotAtTheEndOfItsCallThoughTheEngineKeepsIt) {
  const auto call = std::make_shared<Pull>(&engine_);
  call->Start(
      limit_, []() -> absl::StatusOr<PullRequest> { return PullRequest(); }, call);
  engine_.pull->OnTicket({});
  engine_.pull->OnDone(PullResult());
  EXPECT_EQ(call->tickets, 1);
  EXPECT_THAT(call->ends, ElementsAre(absl::OkStatus()));
  EXPECT_EQ(limit_.active(), 1);
  call->GiveBackPlace();
  EXPECT_EQ(limit_.active(), 0);
}

TEST_F(ServedCallsTest, ASendKeepsItsSlotUntilTheEngineHasAnswered) {
  auto limit = std::make_shared<ConcurrencyLimit>(1);
  std::vector<absl::StatusOr<int32_t>> answers;
  const auto send = [&] {
    ServeSendPrefix(
        engine_, limit, []() -> absl::StatusOr<SendPrefixRequest> { return SendPrefixRequest(); },
        [&](const absl::StatusOr<int32_t>& tokens) { answers.push_back(tokens); });
  };
  send();
  EXPECT_EQ(limit->active(), 1);
  send();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].status().code(), absl::StatusCode::kResourceExhausted);
  engine_.sent(16);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(*answers[1], 16);
  engine_.sent = nullptr;
  EXPECT_EQ(limit->active(), 0);
}

TEST_F(ServedCallsTest, OnlyTheProbedIncarnationWithAWorkingEngineAnswersAPing) {
  EXPECT_TRUE(AnswerPing(engine_, engine_.epoch()).ok());
  EXPECT_TRUE(AnswerPing(engine_, Epoch(0)).ok());
  EXPECT_EQ(AnswerPing(engine_, Epoch(9)),
            absl::FailedPreconditionError("epoch 9 has ended; this is epoch 7"));
  engine_.watchdog = absl::UnavailableError("hangs");
  EXPECT_EQ(AnswerPing(engine_, engine_.epoch()), engine_.watchdog);
}

}  // namespace
}  // namespace baton
