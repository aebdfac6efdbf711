// WorkerService over gRPC, with a scripted engine.
#include "worker_rpc/worker_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/worker_rpc/served_worker.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

class WorkerServiceTest : public ::testing::Test {
 protected:
  v1::WorkerStatus Status() {
    v1::WorkerStatus status;
    EXPECT_TRUE(
        worker_.Ask(&v1::Worker::Stub::GetWorkerStatus, v1::GetWorkerStatusRequest(), &status)
            .ok());
    return status;
  }

  ServedWorker worker_{{.model_name = "fake", .context_length = 300}};
};

TEST_F(WorkerServiceTest, ReturnsItsStatus) {
  worker_.service.SetAddress("host:9");
  v1::WorkerStatus status = Status();
  EXPECT_EQ(status.worker_id(), "w");
  EXPECT_EQ(status.address(), "host:9");
  EXPECT_EQ(status.role(), v1::WORKER_ROLE_DECODE);
  EXPECT_EQ(status.epoch(), 7u);
  EXPECT_EQ(status.model_name(), "fake");
  EXPECT_GT(status.resident_bytes(), 0);
  EXPECT_FALSE(status.draining());
  EXPECT_GE(status.uptime_ms(), 0);
  worker_.service.SetDraining();
  EXPECT_TRUE(Status().draining());
}

TEST_F(WorkerServiceTest, APingForAnotherEpochIsRefused) {
  const auto ping = [this](uint64_t epoch) {
    v1::PingRequest request;
    request.set_epoch(epoch);
    v1::PingResponse response;
    return worker_.Ask(&v1::Worker::Stub::Ping, request, &response);
  };
  EXPECT_TRUE(ping(0).ok()) << "0 means any epoch";
  EXPECT_TRUE(ping(7).ok());
  const grpc::Status stale = ping(6);
  EXPECT_EQ(stale.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(stale.error_message(), HasSubstr("epoch 6 has ended; this is epoch 7"));
}

TEST_F(WorkerServiceTest, DescribesItsTokenizer) {
  v1::TokenizerDescription tokenizer;
  ASSERT_TRUE(
      worker_.Ask(&v1::Worker::Stub::GetTokenizer, v1::GetTokenizerRequest(), &tokenizer).ok());
  EXPECT_EQ(tokenizer.model_name(), "fake");
  EXPECT_EQ(tokenizer.tokens_size(), 257);
  EXPECT_EQ(tokenizer.eos_id(), 256);
}

TEST_F(WorkerServiceTest, ItsRoleChangesWhileItServes) {
  worker_.service.SetTellRouters([] { return WorkerService::Told{.routers = 2, .confirmed = 1}; });
  v1::SetRoleRequest request;
  request.set_role(v1::WORKER_ROLE_PREFILL);
  v1::SetRoleResponse answer;
  ASSERT_TRUE(worker_.Ask(&v1::Worker::Stub::SetRole, request, &answer).ok());
  EXPECT_EQ(answer.before(), v1::WORKER_ROLE_DECODE);
  EXPECT_EQ(answer.role(), v1::WORKER_ROLE_PREFILL);
  EXPECT_EQ(answer.routers(), 2);
  EXPECT_EQ(answer.routers_told(), 1);
  EXPECT_EQ(Status().role(), v1::WORKER_ROLE_PREFILL);
  v1::SetRoleResponse again;
  ASSERT_TRUE(worker_.Ask(&v1::Worker::Stub::SetRole, request, &again).ok());
  EXPECT_EQ(again.before(), v1::WORKER_ROLE_PREFILL);
  EXPECT_EQ(again.routers(), 0) << "the routers know the role already";
}

TEST_F(WorkerServiceTest, OnlyThePlannerWithTheLeaseChangesTheRole) {
  v1::SetRoleRequest request;
  request.set_planner("router-a");
  request.set_lease_ms(RoleLease::kLongestMs);
  v1::SetRoleResponse answer;
  ASSERT_TRUE(worker_.Ask(&v1::Worker::Stub::SetRole, request, &answer).ok());
  EXPECT_EQ(answer.role(), v1::WORKER_ROLE_DECODE) << "it only took the lease";
  request.set_planner("router-b");
  request.set_role(v1::WORKER_ROLE_PREFILL);
  const grpc::Status refused = worker_.Ask(&v1::Worker::Stub::SetRole, request, &answer);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("router-a"));
  request.set_planner("router-a");
  ASSERT_TRUE(worker_.Ask(&v1::Worker::Stub::SetRole, request, &answer).ok());
  EXPECT_EQ(Status().role(), v1::WORKER_ROLE_PREFILL);
}

TEST_F(WorkerServiceTest, AWrongRoleAndADrainingWorkerAreRefused) {
  v1::SetRoleRequest request;
  request.set_role(static_cast<v1::WorkerRole>(4));
  v1::SetRoleResponse answer;
  EXPECT_EQ(worker_.Ask(&v1::Worker::Stub::SetRole, request, &answer).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request.set_role(v1::WORKER_ROLE_BOTH);
  worker_.service.SetDraining();
  EXPECT_EQ(worker_.Ask(&v1::Worker::Stub::SetRole, request, &answer).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(Status().role(), v1::WORKER_ROLE_DECODE);
}

TEST_F(WorkerServiceTest, RefusesASizeBeforeTheEngineIsAsked) {
  v1::ResizePoolRequest request;
  v1::ResizePoolResponse response;
  EXPECT_EQ(worker_.Ask(&v1::Worker::Stub::ResizePool, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request.set_blocks(5);
  EXPECT_EQ(worker_.Ask(&v1::Worker::Stub::ResizePool, request, &response).error_message(),
            "a fake pool");
}

TEST_F(WorkerServiceTest, ClearsPromptChunksOfOneTenantOrAll) {
  v1::ClearCacheRequest request;
  v1::ClearCacheResponse cleared;
  EXPECT_TRUE(worker_.Ask(&v1::Worker::Stub::ClearChunks, request, &cleared).ok());
  EXPECT_EQ(cleared.freed_blocks(), 5);
  request.mutable_only()->set_tenant("t");
  EXPECT_TRUE(worker_.Ask(&v1::Worker::Stub::ClearChunks, request, &cleared).ok());
  EXPECT_EQ(cleared.freed_blocks(), 2);
}

TEST(WorkerServiceChunks, AreListedWithTheWorkersName) {
  ServedWorker worker{{.chunk_entries = {{.key = {}, .tokens = 40, .blocks = 3},
                                         {.key = {}, .tokens = 9, .blocks = 1}}}};
  v1::ListChunksResponse list;
  EXPECT_TRUE(worker.Ask(&v1::Worker::Stub::ListChunks, v1::ListChunksRequest(), &list).ok());
  EXPECT_EQ(list.worker_id(), "w");
  ASSERT_EQ(list.chunks_size(), 2);
  EXPECT_EQ(list.chunks(0).tokens(), 40);
}

TEST_F(WorkerServiceTest, ClearsAndInspects) {
  v1::ClearCacheResponse cleared;
  EXPECT_TRUE(worker_.Ask(&v1::Worker::Stub::ClearCache, v1::ClearCacheRequest(), &cleared).ok());
  v1::InspectResponse inspected;
  EXPECT_TRUE(worker_.Ask(&v1::Worker::Stub::Inspect, v1::InspectRequest(), &inspected).ok());
}

}  // namespace
}  // namespace baton
