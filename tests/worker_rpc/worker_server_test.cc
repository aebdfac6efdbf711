#include "worker_rpc/worker_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/host_port.h"
#include "rpc/channel.h"
#include "tests/e2e/fake_engine.h"
#include "tests/worker_rpc/fake_router.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

// A role whose answer to every prefill shows the engine that the service was made with.
class RecordingRole final : public v1::PrefillWorker::Service {
 public:
  RecordingRole(Engine* engine, ConcurrencyLimit* limit) : engine_(engine), limit_(limit) {}
  grpc::Status Prefill(grpc::ServerContext*, const v1::PrefillRequest*,
                       v1::PrefillResponse* response) override {
    const absl::StatusOr<ConcurrencyLimit::Slot> slot = limit_->Enter();
    if (!slot.ok()) return {grpc::StatusCode::UNAVAILABLE, std::string(slot.status().message())};
    response->set_chunks(static_cast<int32_t>(engine_->epoch().value()));
    return grpc::Status::OK;
  }

 private:
  Engine* const engine_;
  ConcurrencyLimit* const limit_;
};

class WorkerServerTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<WorkerServer>> Start(const std::string& listen,
                                                      const std::string& advertise = "") {
    WorkerServerOptions options{};
    options.server.listen = listen;
    options.advertise = advertise;
    options.server.drain_ms = 100;
    options.server.shutdown_delay_ms = shutdown_delay_ms_;
    options.worker_id = "w";
    options.role = v1::WORKER_ROLE_PREFILL;
    options.routers = routers_;
    return WorkerServer::Start(
        &engine_, &limit_, options,
        {{.name = "baton.v1.PrefillWorker",
          .make = [](Engine* engine, ConcurrencyLimit* limit, const Tracer*) {
            return std::make_unique<RecordingRole>(engine, limit);
          }}});
  }

  FakeRouter router_;
  std::vector<std::string> routers_ = {router_.address()};
  int64_t shutdown_delay_ms_ = 0;
  ConcurrencyLimit limit_{4};
  FakeEngine engine_{9, {}};
};

TEST_F(WorkerServerTest, ServesItsRoleBesideTheWorkersOwnService) {
  const auto server = *Start("127.0.0.1:0");
  const auto channel = MakeChannel(server->address());
  v1::PrefillResponse prefill;
  grpc::ClientContext prefill_context;
  prefill_context.set_deadline(DeadlineIn(20'000));
  ASSERT_TRUE(v1::PrefillWorker::NewStub(channel)
                  ->Prefill(&prefill_context, v1::PrefillRequest(), &prefill)
                  .ok());
  EXPECT_EQ(prefill.chunks(), 9) << "made with the engine";
  v1::WorkerStatus status;
  grpc::ClientContext status_context;
  status_context.set_deadline(DeadlineIn(20'000));
  ASSERT_TRUE(v1::Worker::NewStub(channel)
                  ->GetWorkerStatus(&status_context, v1::GetWorkerStatusRequest(), &status)
                  .ok());
  EXPECT_EQ(status.address(), server->address());
  server->Shutdown();
}

TEST_F(WorkerServerTest, SendsRoutersTheAdvertisedAddress) {
  for (const auto& [advertise, port] : {std::pair("", 0), {"far.host", 0}, {"far.host:81", 81}}) {
    const size_t before = router_.Heard(0).size();
    const auto server = *Start("127.0.0.1:0", advertise);
    const HostPort at = *ParseHostPort(server->address());
    EXPECT_EQ(at.host, *advertise == '\0' ? "127.0.0.1" : "far.host");
    EXPECT_EQ(at.port, port == 0 ? server->rpc().port() : port);
    const std::vector<v1::HeartbeatRequest> heard = router_.Heard(before + 1);
    ASSERT_GT(heard.size(), before);
    EXPECT_EQ(heard.back().status().address(), server->address());
    EXPECT_EQ(heard.back().status().role(), v1::WORKER_ROLE_PREFILL);
    EXPECT_EQ(heard.back().fingerprint().model(), "fake-model");
    server->Shutdown();
  }
}

TEST_F(WorkerServerTest, LeavesRoutersBeforeItRefusesCalls) {
  const auto server = *Start("127.0.0.1:0");
  router_.Heard(1);
  {
    const auto slot = limit_.Enter();
    EXPECT_TRUE(slot.ok());
    server->Shutdown();  // waits for this call no longer than its drain time
  }
  const v1::HeartbeatRequest last = router_.Heard(2).back();
  EXPECT_TRUE(last.leaving());
  EXPECT_TRUE(last.status().draining());
  EXPECT_EQ(limit_.Enter().status().code(), absl::StatusCode::kUnavailable);
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(20'000));
  v1::PingResponse response;
  EXPECT_EQ(v1::Worker::NewStub(MakeChannel(server->address()))
                ->Ping(&context, v1::PingRequest(), &response)
                .error_code(),
            grpc::StatusCode::UNAVAILABLE)
      << "the port is closed";
}

TEST_F(WorkerServerTest, AcceptsCallsDuringTheShutdownDelayButIsNotReady) {
  shutdown_delay_ms_ = 4000;  // far longer than the call below takes
  const auto server = *Start("127.0.0.1:0");
  router_.Heard(1);
  const auto channel = MakeChannel(server->address());
  std::thread shutdown([&] { server->Shutdown(); });
  const auto heard = [&] { return router_.Heard(1).back(); };
  while (!heard().leaving()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(server->CurrentStatus().draining());
  EXPECT_EQ(heard().drain_ms(), 4100) << "delay and drain time";
  v1::PrefillResponse prefill;
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(20'000));
  const grpc::Status status =
      v1::PrefillWorker::NewStub(channel)->Prefill(&context, v1::PrefillRequest(), &prefill);
  EXPECT_TRUE(status.ok()) << status.error_message();
  shutdown.join();
  EXPECT_EQ(limit_.Enter().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(WorkerServerTest, RegistersWithTheAddressesOfAName) {
  const HostPort at = *ParseHostPort(router_.address());
  routers_ = {absl::StrCat("dns:///localhost:", at.port)};
  const auto server = *Start("127.0.0.1:0");
  EXPECT_FALSE(router_.Heard(1).empty());
  server->Shutdown();
  EXPECT_TRUE(router_.Heard(1).back().leaving());
}

TEST_F(WorkerServerTest, AnInvalidRouterIsAnError) {
  routers_ = {"dns://server/name:80"};
  EXPECT_EQ(Start("127.0.0.1:0").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(WorkerServerTest, ATakenOrInvalidAddressIsAnError) {
  const auto server = *Start("127.0.0.1:0");
  const absl::Status taken = Start(server->address()).status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(taken.message()), HasSubstr(server->address()));
  EXPECT_EQ(Start("nowhere").status().code(), absl::StatusCode::kInvalidArgument);
  server->Shutdown();
}

}  // namespace
}  // namespace baton
