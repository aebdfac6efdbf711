// Test of workers with both roles. The engines run the tiny model; router, services and KV transfer
// are the real ones. No program registers with both roles yet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "decode_worker/decode_service.h"
#include "prefill_worker/prefill_service.h"
#include "router/server/router_server.h"
#include "rpc/channel.h"
#include "tests/engine/tiny_engine.h"
#include "worker_rpc/worker_server.h"

namespace baton {
namespace {

class BothRoles {
 public:
  BothRoles(const std::string& id, const std::string& router) {
    EngineOptions options = TinyOptions();
    options.transfer_listen = "127.0.0.1:0";
    options.transfer_advertise = "127.0.0.1";
    options.kv_events = true;
    engine_ = *Engine::Create(options);
    server_ = *WorkerServer::Start(engine_.get(), &limit_,
                                   {.server = {},
                                    .worker_id = id,
                                    .advertise = "",
                                    .role = v1::WORKER_ROLE_BOTH,
                                    .routers = {router}},
                                   {PrefillRoleService(), DecodeRoleService()});
  }
  ~BothRoles() { server_->Shutdown(); }

 private:
  ConcurrencyLimit limit_{64};  // outlives the engine
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<WorkerServer> server_;
};

struct Generated {
  std::vector<int32_t> ids;
  v1::Finished finished;
};

Generated Ask(v1::Inference::Stub& stub, const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(60'000));
  const auto reader = stub.Generate(&context, request);
  Generated out;
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    out.ids.insert(out.ids.end(), response.tokens().token_ids().begin(),
                   response.tokens().token_ids().end());
    if (response.has_finished()) out.finished = response.finished();
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  return out;
}

TEST(ServiceBoth, ARequestHandedFromOneToTheOtherHasTheAnswerOfOneWorker) {
  RouterServerOptions options;
  options.server.listen = "127.0.0.1:0";
  const std::unique_ptr<RouterServer> router = *RouterServer::Start(options);
  const BothRoles one("one", router->rpc().address());
  const BothRoles other("other", router->rpc().address());
  for (int i = 0; i < 2000 && (router->core().Workers().size() < 2 || !router->Tick()); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const auto stub = v1::Inference::NewStub(MakeChannel(router->rpc().address()));
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const GenerateRequest tiny = TinyRequest(/*prompt_tokens=*/50, /*max_tokens=*/12, seed);
    v1::GenerateRequest request;
    request.mutable_prompt_token_ids()->mutable_ids()->Add(tiny.prompt.begin(), tiny.prompt.end());
    request.mutable_sampling()->set_temperature(tiny.sampling.temperature);
    request.mutable_sampling()->set_seed(seed);
    request.mutable_sampling()->set_max_tokens(12);
    request.mutable_sampling()->set_ignore_eos(true);
    request.set_placement(v1::PREFILL_PLACEMENT_REMOTE);
    const Generated handed = Ask(*stub, request);
    request.set_placement(v1::PREFILL_PLACEMENT_LOCAL);
    const Generated alone = Ask(*stub, request);
    EXPECT_EQ(alone.ids.size(), 12u);
    EXPECT_EQ(handed.ids, alone.ids);
    EXPECT_EQ(handed.finished.logits_hash(), alone.finished.logits_hash());
    EXPECT_NE(handed.finished.logits_hash(), 0u);
    EXPECT_GT(handed.finished.ledger().kv_bytes(), 0);
    EXPECT_FALSE(handed.finished.ledger().prefill_worker().empty());
    EXPECT_NE(handed.finished.ledger().prefill_worker(), handed.finished.ledger().decode_worker());
    EXPECT_TRUE(alone.finished.ledger().prefill_worker().empty());
  }
  router->Shutdown();
}

}  // namespace
}  // namespace baton
