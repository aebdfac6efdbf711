// Heartbeats over gRPC to registries that record them.
#include "worker_rpc/heartbeat_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rpc/rpc_server.h"

namespace baton {
namespace {

constexpr int64_t kPatientMs = 60'000;  // a guard against a hang

class RecordingRegistry final : public v1::Registry::CallbackService {
 public:
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::HeartbeatRequest* request,
                                      v1::HeartbeatResponse* response) override {
    {
      std::lock_guard lock(mutex_);
      last_ = request->status().pool().limit_blocks();
    }
    response->set_accepted(true);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  int32_t last() const {
    std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  mutable std::mutex mutex_;
  int32_t last_ = 0;
};

struct Router {
  RecordingRegistry registry;
  std::unique_ptr<RpcServer> server =
      *RpcServer::Start({.listen = "127.0.0.1:0"}, {&registry}, {"baton.v1.Registry"});
};

class HeartbeatClientTest : public ::testing::Test {
 protected:
  std::unique_ptr<HeartbeatClient> Client(std::vector<std::string> routers) {
    return std::make_unique<HeartbeatClient>(std::move(routers), v1::KvFingerprint(), [this] {
      v1::WorkerStatus status;
      status.mutable_pool()->set_limit_blocks(blocks_);
      return status;
    });
  }

  std::atomic<int32_t> blocks_ = 1;
};

TEST_F(HeartbeatClientTest, EveryRouterHasTheNewStatusWhenTellNowReturns) {
  Router a;
  Router b;
  const auto client = Client({a.server->address(), b.server->address()});
  EXPECT_EQ(client->routers(), 2);
  for (int32_t blocks = 2; blocks < 20; ++blocks) {
    blocks_ = blocks;
    EXPECT_EQ(client->TellNow(kPatientMs), 2);
    EXPECT_EQ(a.registry.last(), blocks);
    EXPECT_EQ(b.registry.last(), blocks);
  }
}

TEST_F(HeartbeatClientTest, ARouterThatDoesNotAnswerIsNotCounted) {
  Router router;
  const auto client = Client({router.server->address(), "127.0.0.1:1"});
  EXPECT_EQ(client->TellNow(1000), 1);
}

TEST_F(HeartbeatClientTest, WithoutRoutersThereIsNothingToWaitFor) {
  EXPECT_EQ(Client({})->TellNow(kPatientMs), 0);
}

TEST_F(HeartbeatClientTest, LeavingEndsTheWait) {
  const auto client = Client({"127.0.0.1:1"});
  std::thread leaver([&] { client->Leave(); });
  EXPECT_EQ(client->TellNow(kPatientMs), 0);
  leaver.join();
}

}  // namespace
}  // namespace baton
