// gRPC server of every Baton process: bounded, with keepalive, the standard health service, and
// reflection. It accepts its own connections (connection_acceptor.h) and raises the process's
// descriptor limit for them.
//
// Thread safety: Start, Shutdown and the destructor on one thread; SetServing on any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/connection_acceptor.h"
#include "rpc/reset_guard.h"
#include "rpc/rpc_server_options.h"

namespace baton {

class RpcServer {
 public:
  // Starts a server. `services` must outlive it. `names`: service names for the health service
  // ("baton.v1.Inference"). Unavailable: the address cannot be bound. InvalidArgument: not a valid
  // address, or wrong files for TLS. Internal: a method has no row in the access table.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const RpcServerOptions& options, const std::vector<grpc::Service*>& services,
      std::vector<std::string> names = {});
  // Cancels calls that are still running.
  ~RpcServer();

  // Sets the health status of the process and of every service. Initially NOT_SERVING.
  void SetServing(bool serving);

  // Refuses new calls, cancels those that still run after `grace_ms`, and returns when all have
  // ended.
  void Shutdown(int64_t grace_ms);

  // HOST:PORT with the port that was bound.
  const std::string& address() const { return address_; }
  int32_t port() const { return port_; }

 private:
  RpcServer() = default;

  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<ResetGuard> reset_guard_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;
  std::string address_;
  int32_t port_ = 0;
  std::vector<std::string> names_;
  bool shut_down_ = false;
};

}  // namespace baton
