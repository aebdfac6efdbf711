// Test fixture: a router and workers over real gRPC in one process, with scripted engines.
#pragma once

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "baton/v1/inference.grpc.pb.h"
#include "decode_worker/decode_service.h"
#include "prefill_worker/prefill_service.h"
#include "router/server/router_server.h"
#include "rpc/channel.h"
#include "tests/e2e/fake_engine.h"
#include "worker_rpc/worker_server.h"

namespace baton {

// A worker's server with a FakeEngine, without a process of its own.
class FakeWorker {
 public:
  // `tracer`: as in WorkerServerOptions.
  FakeWorker(v1::WorkerRole role, uint64_t epoch, FakeEngine::Script script,
             const std::string& router, const Tracer* tracer = nullptr)
      : limit_(64), engine_(epoch, std::move(script)) {
    std::vector<RoleService> role_services;
    if (role != v1::WORKER_ROLE_DECODE) role_services.push_back(PrefillRoleService());
    if (role != v1::WORKER_ROLE_PREFILL) role_services.push_back(DecodeRoleService());
    server_ = *WorkerServer::Start(&engine_, &limit_,
                                   {.server = {},
                                    .worker_id = "worker-" + std::to_string(epoch),
                                    .advertise = "",
                                    .role = role,
                                    .routers = {router},
                                    .tracer = tracer},
                                   role_services);
  }
  ~FakeWorker() { Die(); }

  FakeEngine& engine() { return engine_; }
  std::string address() const { return server_->address(); }
  // Ends like a process that gets SIGTERM.
  void Leave() { server_->Shutdown(); }
  // Ends like a process that is killed: its calls break.
  void Die() { server_->rpc().Shutdown(0); }

 private:
  ConcurrencyLimit limit_;
  FakeEngine engine_;
  std::unique_ptr<WorkerServer> server_;
};

struct Answer {
  grpc::Status status;
  v1::Started started;
  int started_count = 0;
  std::string text;
  std::vector<int32_t> ids;
  v1::Finished finished;
  bool has_finished = false;
  // Used for several choices. Then text, ids and finished mix all choices in order of arrival.
  std::map<int32_t, std::string> texts;
  std::vector<v1::Finished> ends;
};

class ServiceTest : public ::testing::Test {
 protected:
  // `http`: settings of the second edge; off by default. `tracing`: of the router. `api_keys`: as
  // RouterServerOptions.
  explicit ServiceTest(HttpEdgeOptions http = {}, TracingOptions tracing = {},
                       std::string api_keys = "",
                       int64_t pull_least_ms = RouterOptions().pull_least_ms)
      : http_(std::move(http)),
        tracing_(std::move(tracing)),
        api_keys_(std::move(api_keys)),
        pull_least_ms_(pull_least_ms) {
    StartRouter("127.0.0.1:0");
  }
  ~ServiceTest() override {
    router_->Shutdown();
    workers_.clear();
  }

  void StartRouter(const std::string& address) {
    RouterServerOptions options;
    options.server.listen = address;
    options.http = http_;
    options.tracing = tracing_;
    options.api_keys = api_keys_;
    options.server.drain_ms = 100;
    options.router.pull_least_ms = pull_least_ms_;
    options.router.index_wait_ms = 60'000;  // long enough to follow all workers on a slow machine
    router_ = *RouterServer::Start(options);
    channel_ = MakeChannel(router_->rpc().address());
    stub_ = v1::Inference::NewStub(channel_);
  }

  FakeWorker& AddWorker(v1::WorkerRole role, FakeEngine::Script script = {}) {
    workers_.push_back(std::make_unique<FakeWorker>(role, workers_.size() + 1, std::move(script),
                                                    router_->rpc().address(), tracer_));
    EXPECT_TRUE(Eventually([this] { return router_->core().Workers().size() == workers_.size(); }));
    EXPECT_TRUE(Eventually([this] { return router_->core().model().ok(); }));
    return *workers_.back();
  }
  FakeWorker& AddDecode(FakeEngine::Script script = {}) {
    return AddWorker(v1::WORKER_ROLE_DECODE, std::move(script));
  }
  // Adds a prefill worker that delivers its prefills to `receiver`.
  FakeWorker& AddPrefill(FakeWorker& receiver, FakeEngine::Script script = {}) {
    FakeWorker& worker = AddWorker(v1::WORKER_ROLE_PREFILL, std::move(script));
    worker.engine().OnPrefill([&receiver](const TransferTicket& ticket) {
      receiver.engine().Answer(ticket.transfer_id);
    });
    return worker;
  }

  v1::GetStatusResponse Status() {
    grpc::ClientContext context;
    v1::GetStatusResponse status;
    EXPECT_TRUE(stub_->GetStatus(&context, v1::GetStatusRequest(), &status).ok());
    return status;
  }
  // Ticks the router until `done` holds. Returns false on timeout.
  bool Ticking(const std::function<bool()>& done) {
    return Eventually([&] {
      router_->Tick();
      return done();
    });
  }

  // Returns the hashes of LongPrompt, which is 200 tokens of the byte tokenizer.
  static std::vector<Hash128> PromptHashes() {
    const CacheNamespace space =
        MakeNamespace({.tenant = "", .cache_salt = "", .lora = "", .model_revision = "fake-model"});
    return ChainedHashes(space, std::vector<CacheUnit>(200, CacheUnit{'x'}));
  }
  // Returns the index's status of a worker, or an empty message if the index does not know it.
  v1::IndexedWorkerStatus Indexed(const std::string& id) {
    const v1::GetStatusResponse status = Status();
    for (const v1::IndexedWorkerStatus& worker : status.index().workers()) {
      if (worker.worker_id() == id) return worker;
    }
    return {};
  }
  bool TickingUntilUnits(const std::string& id, int64_t units) {
    return Ticking([&] { return Indexed(id).followed() && Indexed(id).units() == units; });
  }
  // Ticks until the router follows the KV events of `workers` workers.
  bool TickingUntilFollowed(int workers) {
    return Ticking([this, workers] {
      const v1::GetStatusResponse status = Status();
      return std::count_if(status.index().workers().begin(), status.index().workers().end(),
                           [](const auto& worker) { return worker.followed(); }) == workers;
    });
  }

  // Sends one heartbeat for a worker that does not exist.
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
    return GenerateThen(
        request, [](const Answer&) {}, timeout_ms);
  }
  // Calls `then` after each message of the answer.
  Answer GenerateThen(const v1::GenerateRequest& request,
                      const std::function<void(const Answer&)>& then, int64_t timeout_ms = 60'000) {
    grpc::ClientContext context;
    context.set_deadline(DeadlineIn(timeout_ms));
    const auto reader = stub_->Generate(&context, request);
    Answer answer;
    v1::GenerateResponse response;
    for (; reader->Read(&response); then(answer)) {
      if (response.has_started()) {
        answer.started = response.started();
        ++answer.started_count;
      }
      if (response.has_tokens()) {
        answer.text += response.tokens().text();
        answer.texts[response.tokens().choice()] += response.tokens().text();
        for (const int32_t id : response.tokens().token_ids()) answer.ids.push_back(id);
      }
      if (response.has_finished()) {
        answer.finished = response.finished();
        answer.ends.push_back(response.finished());
        answer.has_finished = true;
      }
    }
    answer.status = reader->Finish();
    return answer;
  }

  const HttpEdgeOptions http_;
  const TracingOptions tracing_;
  const std::string api_keys_;
  const int64_t pull_least_ms_;
  const Tracer* tracer_ = nullptr;  // of workers that are added from now on
  std::unique_ptr<RouterServer> router_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> stub_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
};

}  // namespace baton
