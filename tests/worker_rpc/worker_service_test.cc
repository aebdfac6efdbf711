// WorkerService over gRPC, with a scripted engine.
#include "worker_rpc/worker_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "rpc/channel.h"
#include "rpc/rpc_server.h"
#include "tests/e2e/fake_engine.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

class WorkerServiceTest : public ::testing::Test {
 protected:
  template <typename Request, typename Response>
  grpc::Status Ask(grpc::Status (v1::Worker::Stub::*method)(grpc::ClientContext*, const Request&,
                                                            Response*),
                   const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(DeadlineIn(20'000));
    return (stub_.get()->*method)(&context, request, response);
  }
  v1::WorkerStatus Status() {
    v1::WorkerStatus status;
    EXPECT_TRUE(
        Ask(&v1::Worker::Stub::GetWorkerStatus, v1::GetWorkerStatusRequest(), &status).ok());
    return status;
  }

  FakeEngine engine_{7, {.model_name = "fake", .context_length = 300}};
  WorkerService service_{&engine_, {"w", "", v1::WORKER_ROLE_DECODE}};
  std::unique_ptr<RpcServer> server_ =
      *RpcServer::Start({.listen = "127.0.0.1:0"}, {&service_}, {"baton.v1.Worker"});
  std::shared_ptr<grpc::Channel> channel_ = MakeChannel(server_->address());
  std::unique_ptr<v1::Worker::Stub> stub_ = v1::Worker::NewStub(channel_);
};

TEST_F(WorkerServiceTest, ReturnsItsStatus) {
  service_.SetAddress("host:9");
  v1::WorkerStatus status = Status();
  EXPECT_EQ(status.worker_id(), "w");
  EXPECT_EQ(status.address(), "host:9");
  EXPECT_EQ(status.role(), v1::WORKER_ROLE_DECODE);
  EXPECT_EQ(status.epoch(), 7u);
  EXPECT_EQ(status.model_name(), "fake");
  EXPECT_GT(status.resident_bytes(), 0);
  EXPECT_FALSE(status.draining());
  EXPECT_GE(status.uptime_ms(), 0);
  service_.SetDraining();
  EXPECT_TRUE(Status().draining());
}

TEST_F(WorkerServiceTest, APingForAnotherEpochIsRefused) {
  const auto ping = [this](uint64_t epoch) {
    v1::PingRequest request;
    request.set_epoch(epoch);
    v1::PingResponse response;
    return Ask(&v1::Worker::Stub::Ping, request, &response);
  };
  EXPECT_TRUE(ping(0).ok()) << "0 means any epoch";
  EXPECT_TRUE(ping(7).ok());
  const grpc::Status stale = ping(6);
  EXPECT_EQ(stale.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(stale.error_message(), HasSubstr("epoch 6 has ended; this is epoch 7"));
}

TEST_F(WorkerServiceTest, DescribesItsTokenizer) {
  v1::TokenizerDescription tokenizer;
  ASSERT_TRUE(Ask(&v1::Worker::Stub::GetTokenizer, v1::GetTokenizerRequest(), &tokenizer).ok());
  EXPECT_EQ(tokenizer.model_name(), "fake");
  EXPECT_EQ(tokenizer.tokens_size(), 257);
  EXPECT_EQ(tokenizer.eos_id(), 256);
}

TEST_F(WorkerServiceTest, RefusesASizeBeforeTheEngineIsAsked) {
  v1::ResizePoolRequest request;
  v1::ResizePoolResponse response;
  EXPECT_EQ(Ask(&v1::Worker::Stub::ResizePool, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request.set_blocks(5);
  EXPECT_EQ(Ask(&v1::Worker::Stub::ResizePool, request, &response).error_message(), "a fake pool");
}

TEST_F(WorkerServiceTest, ClearsAndInspects) {
  v1::ClearCacheResponse cleared;
  EXPECT_TRUE(Ask(&v1::Worker::Stub::ClearCache, v1::ClearCacheRequest(), &cleared).ok());
  v1::InspectResponse inspected;
  EXPECT_TRUE(Ask(&v1::Worker::Stub::Inspect, v1::InspectRequest(), &inspected).ok());
}

}  // namespace
}  // namespace baton
