// The services over real gRPC in one process, with engines that follow a script.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "baton/v1/inference.grpc.pb.h"
#include "decode_worker/decode_service.h"
#include "prefill_worker/prefill_service.h"
#include "router/router_server.h"
#include "rpc/channel.h"
#include "tests/e2e/fake_engine.h"
#include "worker_rpc/heartbeat_client.h"
#include "worker_rpc/worker_service.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

// A worker process without the process.
class FakeWorker {
 public:
  FakeWorker(v1::WorkerRole role, uint64_t epoch, FakeEngine::Script script,
             const std::string& router)
      : gate_(64),
        engine_(epoch, std::move(script)),
        worker_service_(
            &engine_,
            {.worker_id = "worker-" + std::to_string(epoch), .address = "", .role = role}),
        prefill_service_(&engine_, &gate_),
        decode_service_(&engine_, &gate_) {
    grpc::Service* role_service = &decode_service_;
    if (role == v1::WORKER_ROLE_PREFILL) role_service = &prefill_service_;
    server_ = *RpcServer::Start({}, {&worker_service_, role_service});
    worker_service_.SetAddress(server_->address());
    heartbeats_ = std::make_unique<HeartbeatClient>(
        std::vector<std::string>{router}, FingerprintToWire(engine_.fingerprint()),
        [this] { return worker_service_.CurrentStatus(); });
  }
  ~FakeWorker() { Die(); }

  FakeEngine& engine() { return engine_; }
  std::string address() const { return server_->address(); }
  // Ends like a process that is killed: calls break.
  void Die() { server_->Shutdown(0); }

 private:
  CallGate gate_;
  FakeEngine engine_;
  WorkerService worker_service_;
  PrefillService prefill_service_;
  DecodeService decode_service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<HeartbeatClient> heartbeats_;
};

struct Answer {
  grpc::Status status;
  v1::Started started;
  std::string text;
  std::vector<int32_t> ids;
  v1::Finished finished;
  bool has_finished = false;
};

class ServiceTest : public ::testing::Test {
 protected:
  ServiceTest() {
    RouterOptions options;
    options.server.listen = "127.0.0.1:0";
    options.server.drain_ms = 100;
    router_ = *RouterServer::Start(options);
    channel_ = MakeChannel(router_->rpc().address());
    stub_ = v1::Inference::NewStub(channel_);
  }
  ~ServiceTest() override {
    router_->Shutdown();
    workers_.clear();
  }

  FakeWorker& AddWorker(v1::WorkerRole role, FakeEngine::Script script = {}) {
    workers_.push_back(std::make_unique<FakeWorker>(role, workers_.size() + 1, std::move(script),
                                                    router_->rpc().address()));
    EXPECT_TRUE(Eventually([this] { return router_->core().Workers().size() == workers_.size(); }));
    EXPECT_TRUE(Eventually([this] { return router_->core().model().ok(); }));
    return *workers_.back();
  }
  FakeWorker& AddDecode(FakeEngine::Script script = {}) {
    return AddWorker(v1::WORKER_ROLE_DECODE, std::move(script));
  }
  // Delivers to `receiver` when its prefill is done.
  FakeWorker& AddPrefill(FakeWorker& receiver, FakeEngine::Script script = {}) {
    FakeWorker& worker = AddWorker(v1::WORKER_ROLE_PREFILL, std::move(script));
    worker.engine().OnPrefill([&receiver](const TransferTicket& ticket) {
      receiver.engine().Answer(ticket.transfer_id);
    });
    return worker;
  }

  // One heartbeat of a worker that is none.
  void Register(const std::string& id, const std::string& address, v1::WorkerRole role) {
    v1::HeartbeatRequest request;
    request.mutable_status()->set_worker_id(id);
    request.mutable_status()->set_address(address);
    request.mutable_status()->set_role(role);
    request.mutable_status()->set_epoch(1);
    *request.mutable_fingerprint() = FingerprintToWire(FakeEngine(1, {}).fingerprint());
    v1::HeartbeatResponse response;
    grpc::ClientContext context;
    ASSERT_TRUE(v1::Registry::NewStub(channel_)->Heartbeat(&context, request, &response).ok());
    EXPECT_TRUE(response.accepted()) << response.reason();
  }

  static bool Eventually(const std::function<bool()>& done) {
    for (int i = 0; i < 2000; ++i) {
      if (done()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  static v1::GenerateRequest LongPrompt() {
    v1::GenerateRequest request;
    request.set_prompt(std::string(200, 'x'));
    return request;
  }
  Answer Generate(const v1::GenerateRequest& request, int64_t timeout_ms = 20'000) {
    grpc::ClientContext context;
    context.set_deadline(DeadlineIn(timeout_ms));
    const auto reader = stub_->Generate(&context, request);
    Answer answer;
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      if (response.has_started()) answer.started = response.started();
      if (response.has_tokens()) {
        answer.text += response.tokens().text();
        for (const int32_t id : response.tokens().token_ids()) answer.ids.push_back(id);
      }
      if (response.has_finished()) {
        answer.finished = response.finished();
        answer.has_finished = true;
      }
    }
    answer.status = reader->Finish();
    return answer;
  }

  std::unique_ptr<RouterServer> router_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> stub_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
};

TEST_F(ServiceTest, ARemotePrefillStreamsAnAnswerWithItsLedger) {
  FakeWorker& decode = AddDecode();
  FakeWorker& prefill = AddPrefill(decode);
  v1::GenerateRequest request = LongPrompt();
  request.set_include_prompt_token_ids(true);
  request.mutable_sampling()->set_seed(7);
  const Answer answer = Generate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "abc");
  EXPECT_EQ(answer.started.prompt_tokens(), 200);
  EXPECT_EQ(answer.started.prompt_token_ids_size(), 200);
  EXPECT_EQ(answer.started.seed(), 7);
  ASSERT_TRUE(answer.has_finished);
  EXPECT_EQ(answer.finished.usage().prompt_tokens(), 200);
  EXPECT_EQ(answer.finished.usage().completion_tokens(), 3);
  EXPECT_EQ(answer.finished.usage().cached_tokens(), 16);
  EXPECT_EQ(answer.finished.ledger().prefill_worker(), "worker-2");
  EXPECT_EQ(answer.finished.ledger().decode_worker(), "worker-1");
  EXPECT_EQ(answer.finished.ledger().prefill_chunks(), 2);
  EXPECT_GE(answer.finished.ledger().total_us(), answer.finished.ledger().first_token_us());
  EXPECT_TRUE(prefill.engine().Eventually([](auto& e) { return e.prefilled_count() == 1; }));
  EXPECT_TRUE(decode.engine().generated()[0].remote_prefill);
  EXPECT_EQ(decode.engine().generated()[0].sampling.seed, 7u);
}

TEST_F(ServiceTest, AShortPromptAndAKnownPrefixArePrefilledOnTheDecodeWorker) {
  FakeWorker& decode = AddDecode();
  AddPrefill(decode);
  v1::GenerateRequest request;
  request.set_prompt("short");
  EXPECT_TRUE(Generate(request).status.ok());
  EXPECT_FALSE(decode.engine().generated()[0].remote_prefill);
  EXPECT_TRUE(Generate(LongPrompt()).status.ok());
  EXPECT_TRUE(decode.engine().generated()[1].remote_prefill);
  EXPECT_TRUE(Generate(LongPrompt()).status.ok());
  EXPECT_FALSE(decode.engine().generated()[2].remote_prefill);
}

TEST_F(ServiceTest, PlacementIsObeyed) {
  FakeWorker& decode = AddDecode();
  AddPrefill(decode);
  v1::GenerateRequest request = LongPrompt();
  request.set_placement(v1::PREFILL_PLACEMENT_LOCAL);
  EXPECT_TRUE(Generate(request).status.ok());
  EXPECT_FALSE(decode.engine().generated()[0].remote_prefill);
  request.set_prompt("short");
  request.set_placement(v1::PREFILL_PLACEMENT_REMOTE);
  EXPECT_TRUE(Generate(request).status.ok());
  EXPECT_TRUE(decode.engine().generated()[1].remote_prefill);
}

TEST_F(ServiceTest, ACancellationReachesBothEngines) {
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

TEST_F(ServiceTest, ADeadlineReachesTheEngine) {
  FakeWorker& decode = AddDecode({.finish = false});
  const Answer answer = Generate(LongPrompt(), /*timeout_ms=*/300);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(decode.engine().Eventually([](auto& e) { return e.cancelled_count() == 1; }));
  const int64_t timeout_ms = decode.engine().generated()[0].timeout_ms;
  EXPECT_GT(timeout_ms, 0);  // 0 would be none
  EXPECT_LT(timeout_ms, 10'000);
}

TEST_F(ServiceTest, ARefusalGoesOnToTheSecondWorker) {
  FakeWorker& full = AddDecode({.refusal = absl::ResourceExhaustedError("no room")});
  FakeWorker& other = AddDecode();
  const Answer answer = Generate(LongPrompt());
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "abc");
  EXPECT_EQ(full.engine().generated().size(), 1);
  EXPECT_EQ(other.engine().generated().size(), 1);
}

TEST_F(ServiceTest, WhenEveryWorkerRefusesTheClientLearnsWhy) {
  AddDecode({.refusal = absl::ResourceExhaustedError("no room")});
  AddDecode({.refusal = absl::ResourceExhaustedError("no room")});
  const Answer answer = Generate(LongPrompt());
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(answer.status.error_message(), "no room");
}

TEST_F(ServiceTest, WithoutRoomForHandOffsARequestQueuesOnItsDecodeWorker) {
  FakeWorker& decode = AddDecode({.hand_off_refusal = absl::ResourceExhaustedError("no room")});
  AddPrefill(decode);
  const Answer answer = Generate(LongPrompt());
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "abc");
  EXPECT_EQ(answer.finished.ledger().prefill_worker(), "");
  ASSERT_EQ(decode.engine().generated().size(), 2u);
  EXPECT_TRUE(decode.engine().generated()[0].remote_prefill);
  EXPECT_FALSE(decode.engine().generated()[1].remote_prefill);

  v1::GenerateRequest demanded = LongPrompt();
  demanded.set_tenant("another");
  demanded.set_placement(v1::PREFILL_PLACEMENT_REMOTE);
  EXPECT_EQ(Generate(demanded).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(decode.engine().generated().size(), 3u);
}

// Sends a last message and leaves the call open.
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

TEST_F(ServiceTest, AWorkerThatNeverClosesItsStreamDoesNotHoldTheCall) {
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

TEST_F(ServiceTest, TheModelComesFromTheSecondWorkerWhenTheFirstDoesNotAnswer) {
  Register("silent", "127.0.0.1:1", v1::WORKER_ROLE_DECODE);
  FakeWorker worker(v1::WORKER_ROLE_DECODE, 7, {}, router_->rpc().address());
  EXPECT_TRUE(Eventually([this] {
    Register("silent", "127.0.0.1:1", v1::WORKER_ROLE_DECODE);
    return router_->core().model().ok();
  }));
  EXPECT_EQ(router_->core().Workers().size(), 2u);
}

TEST_F(ServiceTest, AFailedPrefillIsComputedOnTheDecodeWorker) {
  FakeWorker& decode = AddDecode();
  AddPrefill(decode, {.refusal = absl::InternalError("broken")});
  const Answer answer = Generate(LongPrompt());
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "abc");
  EXPECT_EQ(decode.engine().prefilled_locally(), 1);
  EXPECT_EQ(answer.finished.ledger().prefill_worker(), "");
}

TEST_F(ServiceTest, AWorkerThatDiesInMidStreamIsUnavailable) {
  FakeWorker& decode = AddDecode({.finish = false});
  std::thread killer([&decode] {
    decode.engine().Eventually([](auto& e) { return e.generated_count() == 1; });
    decode.Die();
  });
  const Answer answer = Generate(LongPrompt());
  killer.join();
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE)
      << answer.status.error_message();
}

TEST_F(ServiceTest, InvalidRequestsAreRefusedByFieldAndReachNoWorker) {
  FakeWorker& decode = AddDecode();
  const auto refusal = [this](const v1::GenerateRequest& request) {
    const Answer answer = Generate(request);
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    return answer.status.error_message();
  };
  v1::GenerateRequest request;
  EXPECT_THAT(refusal(request), HasSubstr("prompt_token_ids"));
  request.set_prompt(std::string(600, 'x'));
  EXPECT_THAT(refusal(request), HasSubstr("600 tokens"));
  request.set_prompt(std::string(5 << 20, 'x'));
  EXPECT_THAT(refusal(request), HasSubstr("bytes"));
  request.mutable_prompt_token_ids()->add_ids(257);
  EXPECT_THAT(refusal(request), HasSubstr("prompt_token_ids[0] is 257"));
  request.set_prompt("x");
  request.mutable_sampling()->set_top_p(0);
  EXPECT_THAT(refusal(request), HasSubstr("top_p"));
  request.clear_sampling();
  request.set_request_id(std::string(129, 'x'));
  EXPECT_THAT(refusal(request), HasSubstr("request_id"));
  request.clear_request_id();
  request.set_priority(1000);
  EXPECT_THAT(refusal(request), HasSubstr("priority"));
  EXPECT_EQ(decode.engine().generated().size(), 0);
}

TEST_F(ServiceTest, AMessageOverTheSizeLimitIsRefused) {
  AddDecode();
  v1::GenerateRequest request;
  request.set_prompt(std::string(17 << 20, 'x'));
  EXPECT_EQ(Generate(request).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(ServiceTest, WithoutWorkersRequestsAreUnavailable) {
  EXPECT_EQ(Generate(LongPrompt()).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_FALSE(router_->Tick());
}

TEST_F(ServiceTest, TheModelTokenizesAndStatusNamesTheWorkers) {
  AddDecode();
  grpc::ClientContext tokenize_context;
  v1::TokenizeRequest tokenize;
  tokenize.set_text("hi");
  v1::TokenizeResponse ids;
  ASSERT_TRUE(stub_->Tokenize(&tokenize_context, tokenize, &ids).ok());
  EXPECT_EQ(ids.ids_size(), 2);

  grpc::ClientContext detokenize_context;
  v1::DetokenizeRequest detokenize;
  *detokenize.mutable_ids() = ids.ids();
  v1::DetokenizeResponse text;
  ASSERT_TRUE(stub_->Detokenize(&detokenize_context, detokenize, &text).ok());
  EXPECT_EQ(text.text(), "hi");

  grpc::ClientContext model_context;
  v1::GetModelResponse model;
  ASSERT_TRUE(stub_->GetModel(&model_context, v1::GetModelRequest(), &model).ok());
  EXPECT_EQ(model.name(), "fake");
  EXPECT_FALSE(model.has_chat_template());

  grpc::ClientContext status_context;
  v1::GetStatusResponse status;
  ASSERT_TRUE(stub_->GetStatus(&status_context, v1::GetStatusRequest(), &status).ok());
  ASSERT_EQ(status.workers_size(), 1);
  EXPECT_EQ(status.workers(0).worker_id(), "worker-1");
  EXPECT_EQ(status.workers(0).pool().total_blocks(), 1000);
  EXPECT_TRUE(status.ready());
  EXPECT_TRUE(router_->Tick());
}

TEST_F(ServiceTest, TextCallsBeyondTheLimitsAreRefusedByName) {
  AddDecode();
  v1::DetokenizeRequest detokenize;
  detokenize.mutable_ids()->Resize(1'000'001, 'a');
  grpc::ClientContext detokenize_context;
  v1::DetokenizeResponse text;
  const grpc::Status ids = stub_->Detokenize(&detokenize_context, detokenize, &text);
  EXPECT_EQ(ids.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(ids.error_message(), HasSubstr("at most 1000000"));

  v1::TokenizeRequest tokenize;
  for (int i = 0; i < 4097; ++i) tokenize.mutable_messages()->add_messages();
  grpc::ClientContext tokenize_context;
  v1::TokenizeResponse tokens;
  const grpc::Status messages = stub_->Tokenize(&tokenize_context, tokenize, &tokens);
  EXPECT_EQ(messages.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(messages.error_message(), HasSubstr("at most 4096"));
}

// The only place in the gate is taken by a request that does not end.
TEST_F(ServiceTest, TextCallsCountAsActiveRequests) {
  RouterOptions options;
  options.server.listen = "127.0.0.1:0";
  options.server.drain_ms = 100;
  options.server.max_active_requests = 1;
  const auto router = *RouterServer::Start(options);
  const FakeWorker worker(v1::WORKER_ROLE_DECODE, 7, {.finish = false}, router->rpc().address());
  ASSERT_TRUE(Eventually([&router] { return router->core().model().ok(); }));
  const auto stub = v1::Inference::NewStub(MakeChannel(router->rpc().address()));
  grpc::ClientContext generate_context;
  const auto reader = stub->Generate(&generate_context, LongPrompt());
  v1::GenerateResponse first;
  ASSERT_TRUE(reader->Read(&first));

  grpc::ClientContext tokenize_context, detokenize_context;
  v1::TokenizeResponse ids;
  v1::DetokenizeResponse text;
  EXPECT_EQ(stub->Tokenize(&tokenize_context, v1::TokenizeRequest(), &ids).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(stub->Detokenize(&detokenize_context, v1::DetokenizeRequest(), &text).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  generate_context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  router->Shutdown();
}

TEST_F(ServiceTest, ManyClientsAtOnceAllGetTheirAnswer) {
  FakeWorker& decode = AddDecode({.tokens = 20});
  AddPrefill(decode);
  std::vector<std::thread> clients;
  std::atomic<int> answered = 0;
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([this, &answered, i] {
      for (int j = 0; j < 10; ++j) {
        v1::GenerateRequest request = LongPrompt();
        request.set_tenant(std::to_string(i * 10 + j));  // no shared prefixes
        if (Generate(request).text == "abcdefghijklmnopqrst") ++answered;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, 160);
  EXPECT_EQ(router_->core().counters().requests_failed, 0);
}

TEST_F(ServiceTest, AModelThatDescribesItselfInLatin1IsServed) {
  AddDecode({.model_name = "caf\xE9", .chat_template = "\xE9"});
  grpc::ClientContext context;
  v1::GetModelResponse model;
  const grpc::Status status = stub_->GetModel(&context, v1::GetModelRequest(), &model);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(model.name(), "caf\xEF\xBF\xBD");
  EXPECT_FALSE(model.has_chat_template());
  EXPECT_EQ(Generate(LongPrompt()).text, "abc");
}

TEST_F(ServiceTest, HandOversDoNotWaitForEachOther) {
  FakeWorker& worker = AddDecode({.hold_hand_overs = true});
  const auto stub = v1::DecodeWorker::NewStub(MakeChannel(worker.address()));
  v1::PrefillLocallyRequest request;
  request.set_transfer_id(1);
  request.set_receiver_epoch(worker.engine().epoch().value());
  std::vector<std::future<grpc::Status>> answers;
  for (int i = 0; i < 3; ++i) {
    answers.push_back(std::async(std::launch::async, [&] {
      grpc::ClientContext context;
      context.set_deadline(DeadlineIn(60'000));
      v1::PrefillLocallyResponse response;
      return stub->PrefillLocally(&context, request, &response);
    }));
  }
  EXPECT_TRUE(worker.engine().Eventually([](const auto& e) { return e.hand_over_count() == 3; }));
  worker.engine().AnswerHandOvers();
  for (auto& answer : answers) EXPECT_EQ(answer.get().error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace baton
