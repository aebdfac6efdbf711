// A router that only stores the heartbeats of workers.
//
// Thread safety: every function, from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "baton/v1/worker.grpc.pb.h"
#include "rpc/rpc_server.h"

namespace baton {

class FakeRouter final : public v1::Registry::Service {
 public:
  // Refuses every worker with the message `refusal` if that is not empty.
  explicit FakeRouter(std::string refusal = "", const std::string& listen = "127.0.0.1:0")
      : refusal_(std::move(refusal)),
        server_(*RpcServer::Start({.listen = listen}, {this}, {"baton.v1.Registry"})) {}

  grpc::Status Heartbeat(grpc::ServerContext*, const v1::HeartbeatRequest* request,
                         v1::HeartbeatResponse* response) override {
    response->set_accepted(refusal_.empty());
    response->set_reason(refusal_);
    std::lock_guard lock(mutex_);
    heard_.push_back(*request);
    changed_.notify_all();
    return grpc::Status::OK;
  }

  const std::string& address() const { return server_->address(); }
  // Waits until there are `least` heartbeats, at most 20 s. Returns all of them.
  std::vector<v1::HeartbeatRequest> Heard(size_t least) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return heard_.size() >= least; });
    return heard_;
  }

 private:
  const std::string refusal_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::HeartbeatRequest> heard_;
  const std::unique_ptr<RpcServer> server_;
};

}  // namespace baton
