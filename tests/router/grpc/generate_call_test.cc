// Tests a Generate call between a client without a connection and a decode worker that follows a
// script.
#include "router/grpc/generate_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rpc/rpc_server.h"
#include "tests/router/grpc/fake_client_stream.h"
#include "tests/router/worker_reports.h"
#include "text/byte_alphabet.h"

namespace baton {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kAnswerTokens = 3;

// Sends "abc", then the end. With finishes == false, it waits for the call's cancellation before
// the end.
class ScriptedDecodeWorker final : public v1::DecodeWorker::Service {
 public:
  explicit ScriptedDecodeWorker(bool finishes) : finishes_(finishes) {}

  grpc::Status Decode(grpc::ServerContext* context, const v1::DecodeRequest* request,
                      grpc::ServerWriter<v1::DecodeEvent>* writer) override {
    asked_ = *request;
    for (int32_t token = 'a'; token < 'a' + kAnswerTokens; ++token) {
      v1::DecodeEvent event;
      event.mutable_tokens()->add_token_ids(token);
      event.mutable_tokens()->set_text(std::string(1, static_cast<char>(token)));
      writer->Write(event);
    }
    while (!finishes_ && !context->IsCancelled()) std::this_thread::yield();
    cancelled_ = context->IsCancelled();
    v1::DecodeEvent event;
    event.mutable_finished()->mutable_usage()->set_completion_tokens(kAnswerTokens);
    writer->Write(event);
    return grpc::Status::OK;
  }
  bool cancelled() const { return cancelled_; }
  // REQUIRES: a call has ended.
  const v1::DecodeRequest& request() const { return asked_; }
  const v1::SamplingParams& asked() const { return asked_.sampling(); }

 private:
  const bool finishes_;
  v1::DecodeRequest asked_;
  std::atomic<bool> cancelled_ = false;
};

ModelDescription ByteModel() {
  ModelDescription description;
  description.fingerprint = "model";
  description.context_length = 512;
  description.tokenizer.model = "gpt2";
  description.tokenizer.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    description.tokenizer.tokens.push_back(ByteToAlphabet(static_cast<uint8_t>(byte)));
  }
  description.tokenizer.token_types.assign(256, 1);
  return description;
}

class GenerateCallTest : public ::testing::Test {
 protected:
  GenerateCallTest() : core_(options_, &core_clock_) {}
  ~GenerateCallTest() override { EXPECT_TRUE(limit_.WaitUntilIdle(20'000)); }

  void AddDecodeWorker(bool finishes = true, bool takes_chunks = false) {
    worker_ = std::make_unique<ScriptedDecodeWorker>(finishes);
    server_ = *RpcServer::Start({}, {worker_.get()});
    WorkerReport report = Report("d", WorkerRole::kDecode);
    report.address = server_->address();
    report.pool_tokens = 16'000;
    report.context_length = 512;
    if (takes_chunks) report.chunks = std::make_shared<const PromptChunkSupport>();
    EXPECT_EQ(core_.Heartbeat(report), absl::OkStatus());
    EXPECT_EQ(core_.SetModel(*ServedModel::Create(ByteModel())), absl::OkStatus());
  }

  std::shared_ptr<GenerateCall> Call(std::shared_ptr<FakeClientStream> client,
                                     int64_t left_us = CallDeadline::kForEverUs) {
    const GenerateHost host = {.options = &options_,
                               .core = &core_,
                               .channels = &channels_,
                               .failure_detector = &failure_detector_,
                               .text_tasks = &text_tasks_,
                               .clock = &clock_,
                               .log = &log_};
    return std::make_shared<GenerateCall>(host, *limit_.Enter(), std::move(client),
                                          CallDeadline(left_us, &clock_), /*priority=*/0);
  }
  static v1::GenerateRequest Request() {
    v1::GenerateRequest request;
    request.set_request_id("r");
    request.set_prompt("hello");
    return request;
  }
  static v1::GenerateRequest InParts() {
    v1::GenerateRequest request = Request();
    request.set_prompt("S#A#Bb#Q");
    request.set_chunk_separator("#");
    return request;
  }

  const RouterOptions options_;
  const SystemClock clock_;
  ManualClock core_clock_;
  RouterCore core_;
  std::vector<std::string> logged_;  // at most one call writes to it
  FleetLog log_{&clock_,
                [this](FleetLog::Severity, const std::string& line) { logged_.push_back(line); }};
  WorkerChannels channels_;
  FailureDetector failure_detector_;
  ConcurrencyLimit limit_{16};
  std::unique_ptr<ScriptedDecodeWorker> worker_;
  std::unique_ptr<RpcServer> server_;
  TextTasks text_tasks_;
};

TEST_F(GenerateCallTest, SendsItsClientTheStartTheTokensAndTheEnd) {
  AddDecodeWorker();
  const auto client = std::make_shared<FakeClientStream>();
  Call(client)->Start(Request());
  EXPECT_EQ(client->AwaitEnd(), absl::OkStatus());
  const std::vector<v1::GenerateResponse> events = client->events();
  ASSERT_EQ(events.size(), 1u + kAnswerTokens + 1u);
  EXPECT_EQ(events.front().started().request_id(), "r");
  EXPECT_EQ(events.front().started().prompt_tokens(), 5);
  std::string text;
  for (const v1::GenerateResponse& event : events) text += event.tokens().text();
  EXPECT_EQ(text, "abc");
  EXPECT_EQ(events.back().finished().usage().completion_tokens(), kAnswerTokens);
  EXPECT_EQ(events.back().finished().ledger().decode_worker(), "d");
  EXPECT_EQ(client->ends(), 1);
}

TEST_F(GenerateCallTest, APromptInPartsIsRefusedIfNoWorkerKnowsChunks) {
  AddDecodeWorker();
  v1::GenerateRequest request = Request();
  for (const char* separator : {"", "l"}) {
    request.set_chunk_separator(separator);
    const auto client = std::make_shared<FakeClientStream>();
    Call(client)->Start(request);
    const absl::Status status = client->AwaitEnd();
    if (*separator == '\0') {
      EXPECT_EQ(status, absl::OkStatus());
      continue;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << "an empty chunk in he##o";
  }
  // At first, workers that know chunks may still register.
  for (const auto code : {absl::StatusCode::kUnavailable, absl::StatusCode::kFailedPrecondition}) {
    const auto client = std::make_shared<FakeClientStream>();
    Call(client)->Start(InParts());
    const absl::Status status = client->AwaitEnd();
    EXPECT_EQ(status.code(), code);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("no worker of this fleet supports prompt chunks"));
    EXPECT_TRUE(client->events().empty());
    core_clock_.AdvanceUs(RouterCore::kRegistrationUs);
  }
}

TEST_F(GenerateCallTest, APromptInPartsGoesToAWorkerThatKnowsChunks) {
  AddDecodeWorker(/*finishes=*/true, /*takes_chunks=*/true);
  v1::GenerateRequest request = InParts();
  request.set_chunk_scope("alone");
  const auto client = std::make_shared<FakeClientStream>();
  Call(client)->Start(request);
  EXPECT_EQ(client->AwaitEnd(), absl::OkStatus());
  EXPECT_EQ(client->events().front().started().prompt_tokens(), 5) << "separators are no tokens";
  const v1::DecodeRequest& asked = worker_->request();
  EXPECT_EQ(asked.prompt_token_ids_size(), 0) << "an older worker must refuse it";
  EXPECT_THAT(asked.chunked().system().ids(), ElementsAre('S'));
  ASSERT_EQ(asked.chunked().chunks_size(), 2);
  EXPECT_THAT(asked.chunked().chunks(1).ids(), ElementsAre('B', 'b'));
  EXPECT_THAT(asked.chunked().question().ids(), ElementsAre('Q'));
  EXPECT_EQ(asked.chunked().chunk_scope(), "alone");
  // The client set no max_tokens. Two chunks share position 1, so the answer begins at position 4.
  EXPECT_EQ(asked.sampling().max_tokens(), 512 - 4);
}

TEST_F(GenerateCallTest, AQuestionWithoutOtherPartsIsAnOrdinaryPrompt) {
  AddDecodeWorker();
  v1::GenerateRequest request = Request();
  request.mutable_parts()->mutable_question()->set_text("hello");
  const auto client = std::make_shared<FakeClientStream>();
  Call(client)->Start(request);
  EXPECT_EQ(client->AwaitEnd(), absl::OkStatus());
  EXPECT_FALSE(worker_->request().has_chunked());
  EXPECT_EQ(worker_->request().prompt_token_ids_size(), 5);
}

TEST_F(GenerateCallTest, AnInvalidRequestIsRefusedWithTheReason) {
  AddDecodeWorker();
  const auto client = std::make_shared<FakeClientStream>();
  v1::GenerateRequest request = Request();
  request.mutable_sampling()->set_temperature(-1);
  Call(client)->Start(request);
  const absl::Status status = client->AwaitEnd();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("temperature is -1"));
  EXPECT_TRUE(client->events().empty());
}

TEST_F(GenerateCallTest, MinTokensWithoutMaxTokensMayExceedTheRoomOfAWorker) {
  AddDecodeWorker();
  const auto client = std::make_shared<FakeClientStream>();
  v1::GenerateRequest request = Request();
  request.mutable_sampling()->set_min_tokens(100'000);
  Call(client)->Start(request);
  EXPECT_EQ(client->AwaitEnd(), absl::OkStatus());
  EXPECT_EQ(worker_->asked().max_tokens(), 507);
  EXPECT_EQ(worker_->asked().min_tokens(), 507);
}

TEST_F(GenerateCallTest, WithoutAWorkerTheCallIsUnavailable) {
  const auto client = std::make_shared<FakeClientStream>();
  Call(client)->Start(Request());
  EXPECT_EQ(client->AwaitEnd().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(limit_.WaitUntilIdle(20'000));
  EXPECT_THAT(logged_, ElementsAre(HasSubstr("request r failed")));
}

// A shutdown may end a call while a text thread tokenises its prompt. The text thread must not
// write what the shutdown reads.
TEST_F(GenerateCallTest, ACallMayBeCancelledWhileItsPromptIsTokenised) {
  AddDecodeWorker();
  for (int round = 0; round < 50; ++round) {
    const auto client = std::make_shared<FakeClientStream>();
    const auto call = Call(client);
    v1::GenerateRequest request = Request();
    request.set_prompt(std::string(400, 'x'));
    call->Start(request);
    std::this_thread::sleep_for(std::chrono::microseconds(20 * round));
    call->CallOff(absl::UnavailableError("the router is shutting down"));
    EXPECT_THAT(client->AwaitEnd().code(),
                AnyOf(absl::StatusCode::kUnavailable, absl::StatusCode::kOk));
  }
  ASSERT_TRUE(limit_.WaitUntilIdle(20'000));
  for (const std::string& line : logged_) EXPECT_THAT(line, HasSubstr("request r failed"));
}

TEST_F(GenerateCallTest, ADisconnectedClientCancelsTheWorkersCall) {
  AddDecodeWorker(/*finishes=*/false);
  const auto client = std::make_shared<FakeClientStream>();
  const auto call = Call(client);
  call->Start(Request());
  ASSERT_TRUE(client->HasEvents(1 + kAnswerTokens));
  call->OnClientGone();
  EXPECT_EQ(client->AwaitEnd(), absl::CancelledError("cancelled by the client"));
  server_->Shutdown(20'000);
  EXPECT_TRUE(worker_->cancelled());
  EXPECT_EQ(core_.counters().requests_cancelled, 1);
}

TEST_F(GenerateCallTest, ADisconnectAfterTheDeadlineCountsAsDeadlineExceeded) {
  AddDecodeWorker(/*finishes=*/false);
  const auto client = std::make_shared<FakeClientStream>();
  const auto call = Call(client, /*left_us=*/0);
  call->OnClientGone();
  EXPECT_EQ(client->AwaitEnd().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(GenerateCallTest, AClientThatDoesNotReadLosesItsAnswer) {
  AddDecodeWorker(/*finishes=*/false);
  const auto client = std::make_shared<FakeClientStream>(/*most_events=*/2);
  Call(client)->Start(Request());
  EXPECT_EQ(client->AwaitEnd().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(client->events().size(), 2u);
  server_->Shutdown(20'000);
  EXPECT_TRUE(worker_->cancelled());
}

TEST_F(GenerateCallTest, TheServerMayEndTheCallWithItsOwnStatus) {
  AddDecodeWorker(/*finishes=*/false);
  const auto client = std::make_shared<FakeClientStream>();
  const auto call = Call(client);
  call->Start(Request());
  ASSERT_TRUE(client->HasEvents(1));
  call->CallOff(absl::UnavailableError("the router ends"));
  EXPECT_EQ(client->AwaitEnd(), absl::UnavailableError("the router ends"));
}

}  // namespace
}  // namespace baton
