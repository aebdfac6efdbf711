// Tests of a request when its client leaves, a worker dies or refuses, or a whole role is missing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>

#include "tests/e2e/service_fixture.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

class ServiceFailureTest : public ServiceTest {};

TEST_F(ServiceFailureTest, ACancellationReachesBothEngines) {
  FakeWorker& decode = AddDecode({.finish = false});
  FakeWorker& prefill = AddPrefill(decode, {.finish = false});
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, LongPrompt());
  ASSERT_TRUE(prefill.engine().Eventually([](auto& e) { return e.prefilled_count() == 1; }));
  context.TryCancel();
  EXPECT_TRUE(decode.engine().Eventually([](auto& e) { return e.cancelled_count() == 1; }));
  EXPECT_TRUE(prefill.engine().Eventually([](auto& e) { return e.cancelled_count() == 1; }));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([this] { return router_->core().counters().active_requests == 0; }));
}

TEST_F(ServiceFailureTest, AnAnswerThatOutlastsTheRoutersDrainEndsWithThatReason) {
  FakeWorker& decode = AddDecode({.finish = false});
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, LongPrompt());
  ASSERT_TRUE(decode.engine().Eventually([](auto& e) { return e.generated_count() == 1; }));
  router_->Shutdown();
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("--drain-ms of 100 ms"));
  EXPECT_THAT(status.error_message(), HasSubstr(router_->rpc().address()));
}

TEST_F(ServiceFailureTest, ADeadlineReachesTheEngine) {
  FakeWorker& decode = AddDecode({.finish = false});
  // On a slow machine a short deadline passes before the engine gets the request.
  for (int timeout_ms = 250; decode.engine().generated().empty(); timeout_ms *= 2) {
    ASSERT_LT(timeout_ms, 100'000);
    const Answer answer = Generate(LongPrompt(), timeout_ms);
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  EXPECT_TRUE(decode.engine().Eventually([](auto& e) { return e.cancelled_count() == 1; }));
  const int64_t timeout_ms = decode.engine().generated()[0].timeout_ms;
  EXPECT_GT(timeout_ms, 0);  // 0 would mean no deadline
  EXPECT_LT(timeout_ms, 100'000);
}

TEST_F(ServiceFailureTest, AWorkerWhoseEngineHangsIsSilent) {
  FakeWorker& hung = AddDecode();
  FakeWorker& other = AddDecode();
  hung.engine().Hang();
  EXPECT_TRUE(Eventually([this] {
    const std::vector<WorkerRecord> workers = router_->core().Workers();
    return workers.front().silent && !workers.back().silent;
  }));
  EXPECT_EQ(Generate(LongPrompt()).text, "abc");
  EXPECT_EQ(other.engine().generated().size(), 1);
}

TEST_F(ServiceFailureTest, AWorkerWithOtherNumericsIsRefusedAndStatusShowsTheReason) {
  AddDecode();
  workers_.push_back(std::make_unique<FakeWorker>(
      v1::WORKER_ROLE_DECODE, 2, FakeEngine::Script{.kv_type = "int8"}, router_->rpc().address()));
  ASSERT_TRUE(Eventually([this] { return Status().refused_workers_size() == 1; }));
  const v1::RefusedWorker refused = Status().refused_workers(0);
  EXPECT_EQ(refused.worker_id(), "worker-2");
  EXPECT_THAT(refused.reason(), testing::HasSubstr("KV type int8"));
  EXPECT_THAT(refused.reason(), testing::HasSubstr("KV type f16"));
  EXPECT_EQ(Status().workers_size(), 1);
}

TEST_F(ServiceFailureTest, AnInvalidRequestIsNotCountedAsAWorkerFailure) {
  AddDecode();
  v1::GenerateRequest request = LongPrompt();
  request.mutable_sampling()->set_temperature(-1);
  EXPECT_EQ(Generate(request).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(Eventually([this] { return Status().active_requests() == 0; }));
  const v1::GetStatusResponse status = Status();
  EXPECT_EQ(status.requests_total(), 1);
  EXPECT_EQ(status.requests_rejected(), 1);
  EXPECT_EQ(status.requests_failed(), 0);
}

TEST_F(ServiceFailureTest, AfterARefusalTheSecondWorkerIsTried) {
  FakeWorker& full = AddDecode({.refusal = absl::ResourceExhaustedError("no room")});
  FakeWorker& other = AddDecode();
  const Answer answer = Generate(LongPrompt());
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "abc");
  EXPECT_EQ(full.engine().generated().size(), 1);
  EXPECT_EQ(other.engine().generated().size(), 1);
}

TEST_F(ServiceFailureTest, WhenEveryWorkerRefusesTheClientGetsTheReason) {
  AddDecode({.refusal = absl::ResourceExhaustedError("no room")});
  AddDecode({.refusal = absl::ResourceExhaustedError("no room")});
  const Answer answer = Generate(LongPrompt());
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(answer.status.error_message(), "no room");
}

// As a worker of an earlier version refuses them, or one whose queue is full.
TEST_F(ServiceFailureTest, WhereEveryHandOffIsRefusedTheDecodeWorkerComputesThePrompt) {
  FakeWorker& decode = AddDecode({.hand_off_refusal = absl::ResourceExhaustedError("no room")});
  AddPrefill(decode);
  const Answer answer = Generate(LongPrompt());
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "abc");
  EXPECT_EQ(answer.finished.ledger().prefill_worker(), "");
  ASSERT_EQ(decode.engine().generated().size(), 3u);
  const auto expect = [&](size_t call, bool remote_prefill, bool queues_for_kv) {
    EXPECT_EQ(decode.engine().generated()[call].remote_prefill, remote_prefill) << call;
    EXPECT_EQ(decode.engine().generated()[call].queues_for_kv, queues_for_kv) << call;
  };
  expect(0, true, false);
  expect(1, true, true);
  expect(2, false, false);

  v1::GenerateRequest demanded = LongPrompt();
  demanded.set_tenant("another");
  demanded.set_placement(v1::PREFILL_PLACEMENT_REMOTE);
  EXPECT_EQ(Generate(demanded).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(decode.engine().generated().size(), 5u);
}

// A decode worker that sends its last message and leaves the call open.
class NeverClosingDecoder final : public v1::DecodeWorker::CallbackService {
 public:
  grpc::ServerWriteReactor<v1::DecodeEvent>* Decode(grpc::CallbackServerContext*,
                                                    const v1::DecodeRequest*) override {
    return new Call(&cancelled_);
  }
  int cancelled() const { return cancelled_; }

 private:
  class Call final : public grpc::ServerWriteReactor<v1::DecodeEvent> {
   public:
    explicit Call(std::atomic<int>* cancelled) : cancelled_(cancelled) {
      event_.mutable_finished();
      StartWrite(&event_);
    }
    void OnCancel() override {
      ++*cancelled_;
      Finish(grpc::Status::CANCELLED);
    }
    void OnDone() override { delete this; }

   private:
    std::atomic<int>* const cancelled_;
    v1::DecodeEvent event_;
  };
  std::atomic<int> cancelled_ = 0;
};

TEST_F(ServiceFailureTest, AWorkerThatNeverClosesItsStreamDoesNotHoldTheCall) {
  AddWorker(v1::WORKER_ROLE_PREFILL);
  NeverClosingDecoder decoder;
  const auto server = *RpcServer::Start({}, {&decoder});
  Register("never-closing", server->address(), v1::WORKER_ROLE_DECODE);
  v1::GenerateRequest request;
  request.set_prompt("short");
  const Answer answer = Generate(request, /*timeout_ms=*/600'000);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_TRUE(answer.has_finished);
  EXPECT_TRUE(Eventually([&decoder] { return decoder.cancelled() == 1; }));
}

TEST_F(ServiceFailureTest, TheModelComesFromTheSecondWorkerWhenTheFirstDoesNotAnswer) {
  Register("silent", "127.0.0.1:1", v1::WORKER_ROLE_DECODE);
  FakeWorker worker(v1::WORKER_ROLE_DECODE, 7, {}, router_->rpc().address());
  EXPECT_TRUE(Eventually([this] {
    Register("silent", "127.0.0.1:1", v1::WORKER_ROLE_DECODE);
    return router_->core().model().ok();
  }));
  EXPECT_EQ(router_->core().Workers().size(), 2u);
}

TEST_F(ServiceFailureTest, AFailedPrefillIsComputedOnTheDecodeWorker) {
  FakeWorker& decode = AddDecode();
  AddPrefill(decode, {.refusal = absl::InternalError("broken")});
  const Answer answer = Generate(LongPrompt());
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "abc");
  EXPECT_EQ(decode.engine().prefilled_locally(), 1);
  EXPECT_EQ(answer.finished.ledger().prefill_worker(), "");
}

// The second attempt's decode and prefill workers get the tokens that the client already has.
TEST_F(ServiceFailureTest, AnotherWorkerContinuesWhenOneDiesInMidStream) {
  FakeWorker& lost = AddDecode({.tokens = 3, .finish = false});
  const Answer answer = GenerateThen(LongPrompt(), [this, &lost](const Answer& begun) {
    if (begun.text != "abc") return;
    // The workers of the next attempt join while the first worker streams its answer.
    FakeWorker& other = AddDecode({.tokens = 5});
    AddPrefill(other);
    lost.Die();
  });
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "abcde");
  EXPECT_EQ(answer.ids, (std::vector<int32_t>{'a', 'b', 'c', 'd', 'e'}));
  EXPECT_EQ(answer.started_count, 1);
  EXPECT_EQ(answer.finished.ledger().resumes(), 1);
  EXPECT_EQ(answer.finished.ledger().decode_worker(), "worker-2");
  EXPECT_EQ(answer.finished.ledger().prefill_worker(), "worker-3");
  const auto asked = workers_[1]->engine().generated();
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].prompt.size(), 200u);
  ASSERT_EQ(asked[0].generated.size(), 1u);
  EXPECT_EQ(asked[0].generated[0].tokens, (std::vector<TokenId>{'a', 'b', 'c'}));
  EXPECT_EQ(asked[0].generated[0].logits_hash, 102u);
  const auto prefilled = workers_[2]->engine().prefilled();
  ASSERT_EQ(prefilled.size(), 1u);
  EXPECT_EQ(prefilled[0].generated.tokens, asked[0].generated[0].tokens);
  EXPECT_EQ(prefilled[0].generated.logits_hash, 102u);
}

// The client gave no max_tokens. The answer must end where its first worker would have ended it,
// even if another worker continues it.
TEST_F(ServiceFailureTest, AResumedAnswerEndsAtItsFirstWorkersLimit) {
  FakeWorker& lost = AddDecode({.tokens = 3, .finish = false, .context_length = 300});
  const Answer answer = GenerateThen(LongPrompt(), [this, &lost](const Answer& begun) {
    if (begun.text != "abc") return;
    AddDecode({.tokens = 5});
    lost.Die();
  });
  EXPECT_EQ(answer.text, "abcde") << answer.status.error_message();
  for (const auto& worker : workers_) {
    const auto asked = worker->engine().generated();
    ASSERT_EQ(asked.size(), 1u);
    EXPECT_EQ(asked[0].sampling.max_tokens, 300 - 200);
  }
}

// The next decode worker gets each choice's tokens that the client already has. The prefill worker
// gets none.
TEST_F(ServiceFailureTest, AnotherWorkerContinuesEveryChoice) {
  FakeWorker& lost = AddDecode({.tokens = 3, .finish = false});
  v1::GenerateRequest request = LongPrompt();
  request.set_n(2);
  const std::map<int32_t, std::string> both = {{0, "abc"}, {1, "abc"}};
  const Answer answer = GenerateThen(request, [&](const Answer& begun) {
    if (begun.texts != both) return;
    FakeWorker& other = AddDecode({.tokens = 5});
    AddPrefill(other);
    lost.Die();
  });
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.texts, (std::map<int32_t, std::string>{{0, "abcde"}, {1, "abcde"}}));
  EXPECT_EQ(answer.started_count, 1);
  ASSERT_EQ(answer.ends.size(), 2u);
  EXPECT_EQ(answer.ends[0].ledger().resumes(), 1);
  const auto asked = workers_[1]->engine().generated();
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].n, 2);
  ASSERT_EQ(asked[0].generated.size(), 2u);
  for (const GeneratedPart& part : asked[0].generated) {
    EXPECT_EQ(part.tokens, (std::vector<TokenId>{'a', 'b', 'c'}));
    EXPECT_EQ(part.logits_hash, 102u);
    EXPECT_FALSE(part.finished);
  }
  const auto prefilled = workers_[2]->engine().prefilled();
  ASSERT_EQ(prefilled.size(), 1u);
  EXPECT_EQ(prefilled[0].n, 2);
  EXPECT_TRUE(prefilled[0].generated.tokens.empty());
}

TEST_F(ServiceFailureTest, AWorkerThatDiesInMidStreamWithoutAnotherIsUnavailable) {
  FakeWorker& decode = AddDecode({.finish = false});
  const Answer answer = GenerateThen(LongPrompt(), [&decode](const Answer& begun) {
    if (begun.text == "abc") decode.Die();
  });
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE)
      << answer.status.error_message();
  EXPECT_THAT(answer.status.error_message(), HasSubstr("decode worker worker-1 at 127.0.0.1:"));
}

}  // namespace
}  // namespace baton
