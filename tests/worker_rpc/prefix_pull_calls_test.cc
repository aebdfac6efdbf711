#include "worker_rpc/prefix_pull_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/worker_rpc/served_worker.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kContext = 40;

template <typename Request>
Request WithTokens(int32_t count) {
  Request request;
  for (int32_t i = 0; i < count; ++i) request.add_token_ids(i);
  return request;
}

// Client of one PullPrefix call.
class Pull {
 public:
  Pull(ServedWorker& worker, const v1::PullPrefixRequest& request) {
    context_.set_deadline(DeadlineIn(kTestTimeoutMs));
    reader_ = worker.stub->PullPrefix(&context_, request);
  }
  // Returns an event without a kind if the stream has ended.
  v1::PullPrefixEvent Next() {
    v1::PullPrefixEvent event;
    reader_->Read(&event);
    return event;
  }
  grpc::Status Finish() { return reader_->Finish(); }
  void Cancel() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::PullPrefixEvent>> reader_;
};

TEST(PrefixPullCalls, APullReportsItsTicketThenItsResult) {
  ServedWorker worker({.context_length = kContext});
  auto request = WithTokens<v1::PullPrefixRequest>(32);
  request.set_cache_namespace(3);
  request.set_priority(-2);
  Pull pull(worker, request);
  const v1::PullPrefixEvent ticket = pull.Next();
  ASSERT_TRUE(ticket.has_ticket());
  EXPECT_EQ(ticket.ticket().ticket().block_count(), 2);
  EXPECT_EQ(ticket.ticket().ticket().receiver_epoch(), ServedWorker::kEpoch);
  ASSERT_EQ(worker.engine.pulled().size(), 1u);
  EXPECT_EQ(worker.engine.pulled()[0].tokens.size(), 32u);
  EXPECT_EQ(worker.engine.pulled()[0].cache_namespace, CacheNamespace(3));
  EXPECT_EQ(worker.engine.pulled()[0].priority, -2);
  worker.engine.EndPull(
      ticket.ticket().ticket().transfer_id(),
      PullResult{.tokens = 32, .pulled_tokens = 16, .kv_bytes = 99, .kv_transfer_us = 7});
  const v1::PullPrefixEvent done = pull.Next();
  ASSERT_TRUE(done.has_done());
  EXPECT_EQ(done.done().tokens(), 32);
  EXPECT_EQ(done.done().pulled_tokens(), 16);
  EXPECT_EQ(done.done().kv_bytes(), 99);
  EXPECT_EQ(done.done().kv_transfer_us(), 7);
  EXPECT_TRUE(pull.Finish().ok());
}

TEST(PrefixPullCalls, ARefusedOrFailedPullEndsWithItsReason) {
  ServedWorker refusing({.pull_refusal = absl::ResourceExhaustedError("no room")});
  Pull refused(refusing, WithTokens<v1::PullPrefixRequest>(16));
  EXPECT_EQ(refused.Next().event_case(), v1::PullPrefixEvent::EVENT_NOT_SET);
  const grpc::Status no_room = refused.Finish();
  EXPECT_EQ(no_room.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(no_room.error_message(), "no room");

  ServedWorker worker({});
  Pull failed(worker, WithTokens<v1::PullPrefixRequest>(16));
  const v1::PullPrefixEvent ticket = failed.Next();
  ASSERT_TRUE(ticket.has_ticket());
  worker.engine.EndPull(ticket.ticket().ticket().transfer_id(), absl::DataLossError("crc"));
  EXPECT_EQ(failed.Next().event_case(), v1::PullPrefixEvent::EVENT_NOT_SET);
  EXPECT_EQ(failed.Finish().error_code(), grpc::StatusCode::DATA_LOSS);
}

TEST(PrefixPullCalls, AClientThatLeavesEndsItsPull) {
  ServedWorker worker({});
  Pull pull(worker, WithTokens<v1::PullPrefixRequest>(16));
  ASSERT_TRUE(pull.Next().has_ticket());
  pull.Cancel();
  EXPECT_TRUE(worker.engine.Eventually([](FakeEngine& e) { return e.live_pull_count() == 0; }));
  EXPECT_EQ(pull.Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST(PrefixPullCalls, APrefixBeyondTheContextIsRefusedBeforeTheEngineIsAsked) {
  ServedWorker worker({.context_length = kContext});
  Pull pull(worker, WithTokens<v1::PullPrefixRequest>(kContext + 1));
  EXPECT_EQ(pull.Next().event_case(), v1::PullPrefixEvent::EVENT_NOT_SET);
  const grpc::Status status = pull.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("41 tokens exceeds the context of 40"));
  v1::SendPrefixResponse response;
  EXPECT_EQ(worker
                .Ask(&v1::Worker::Stub::SendPrefix, WithTokens<v1::SendPrefixRequest>(kContext + 1),
                     &response)
                .error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(worker.engine.pulled().empty());
  EXPECT_TRUE(worker.engine.sent().empty());
}

TEST(PrefixPullCalls, ASendAnswersWithTheTokensThatTheReceiverWillHave) {
  ServedWorker worker({});
  worker.engine.OnSend([](const SendPrefixRequest& request, const FakeEngine::SendDone& done) {
    done(static_cast<int32_t>(request.tokens.size()));
  });
  auto request = WithTokens<v1::SendPrefixRequest>(48);
  request.set_priority(5);
  request.mutable_ticket()->mutable_ticket()->set_transfer_id(11);
  v1::SendPrefixResponse response;
  ASSERT_TRUE(worker.Ask(&v1::Worker::Stub::SendPrefix, request, &response).ok());
  EXPECT_EQ(response.tokens(), 48);
  ASSERT_EQ(worker.engine.sent().size(), 1u);
  EXPECT_EQ(worker.engine.sent()[0].ticket.transfer_id, 11u);
  EXPECT_EQ(worker.engine.sent()[0].priority, 5);
}

TEST(PrefixPullCalls, ASendOfNothingIsNotFound) {
  ServedWorker worker({});
  v1::SendPrefixResponse response;
  const grpc::Status status =
      worker.Ask(&v1::Worker::Stub::SendPrefix, WithTokens<v1::SendPrefixRequest>(48), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "nothing is cached");
}

// A worker that has reached its limit on pulls and sends.
class FullWorker final : public v1::Worker::CallbackService {
 public:
  explicit FullWorker(FakeEngine* engine) : engine_(engine) {}
  grpc::ServerWriteReactor<v1::PullPrefixEvent>* PullPrefix(
      grpc::CallbackServerContext*, const v1::PullPrefixRequest* request) override {
    return StartPull(engine_, *request, *limit_);
  }
  grpc::ServerUnaryReactor* SendPrefix(grpc::CallbackServerContext*,
                                       const v1::SendPrefixRequest* request,
                                       v1::SendPrefixResponse* response) override {
    return StartSend(engine_, *request, response, limit_);
  }

 private:
  FakeEngine* const engine_;
  const std::shared_ptr<ConcurrencyLimit> limit_ = std::make_shared<ConcurrencyLimit>(0, "pulls");
};

TEST(PrefixPullCalls, BeyondTheirLimitTheyAreRefusedBeforeTheEngineIsAsked) {
  FakeEngine engine(1, {});
  FullWorker service(&engine);
  const auto server = *RpcServer::Start({.listen = "127.0.0.1:0"}, {&service});
  const auto stub = v1::Worker::NewStub(MakeChannel(server->address()));
  grpc::ClientContext pull_context, send_context;
  pull_context.set_deadline(DeadlineIn(kTestTimeoutMs));
  send_context.set_deadline(DeadlineIn(kTestTimeoutMs));
  const auto pull = stub->PullPrefix(&pull_context, WithTokens<v1::PullPrefixRequest>(16));
  EXPECT_EQ(pull->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  v1::SendPrefixResponse response;
  EXPECT_EQ(stub->SendPrefix(&send_context, WithTokens<v1::SendPrefixRequest>(16), &response)
                .error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(engine.pulled().empty());
  EXPECT_TRUE(engine.sent().empty());
}

}  // namespace
}  // namespace baton
