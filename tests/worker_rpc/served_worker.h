// WorkerService of a scripted engine, over real gRPC.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <utility>

#include "rpc/channel.h"
#include "rpc/rpc_server.h"
#include "tests/e2e/fake_engine.h"
#include "worker_rpc/worker_service.h"

namespace baton {

inline constexpr int64_t kTestTimeoutMs = 20'000;

struct ServedWorker {
  static constexpr uint64_t kEpoch = 7;

  explicit ServedWorker(FakeEngine::Script script) : engine(kEpoch, std::move(script)) {}
  // Ends open calls before the objects that they use.
  ~ServedWorker() { server->Shutdown(0); }

  template <typename Request, typename Response>
  grpc::Status Ask(grpc::Status (v1::Worker::Stub::*method)(grpc::ClientContext*, const Request&,
                                                            Response*),
                   const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(DeadlineIn(kTestTimeoutMs));
    return (stub.get()->*method)(&context, request, response);
  }

  FakeEngine engine;
  WorkerService service{&engine, {"w", "", v1::WORKER_ROLE_DECODE}};
  std::unique_ptr<RpcServer> server =
      *RpcServer::Start({.listen = "127.0.0.1:0"}, {&service}, {"baton.v1.Worker"});
  std::shared_ptr<grpc::Channel> channel = MakeChannel(server->address());
  std::unique_ptr<v1::Worker::Stub> stub = v1::Worker::NewStub(channel);
};

}  // namespace baton
