// A gRPC server as every Baton process runs it: bounded, with keepalive, the standard health
// service and reflection. It accepts its connections itself (connection_acceptor.h), and raises the
// process's limit on descriptors for them.
//
// Thread safety: Start, Shutdown and the destructor from one thread; SetServing from any.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rpc/connection_acceptor.h"
#include "rpc/rpc_server_options.h"

namespace baton {

class RpcServer {
 public:
  // Services must outlive the server; `names` are what the health service knows them by
  // ("baton.v1.Inference"). Unavailable when the address cannot be bound, InvalidArgument when it
  // is none.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const RpcServerOptions& options, const std::vector<grpc::Service*>& services,
      std::vector<std::string> names = {});
  // Calls still running are cancelled.
  ~RpcServer();

  // What the health service says, for the process and every service. NOT_SERVING at first.
  void SetServing(bool serving);

  // Takes no new calls; cancels those that still run after `grace_ms`; returns when all have ended.
  void Shutdown(int64_t grace_ms);

  // HOST:PORT with the port that was bound.
  const std::string& address() const { return address_; }
  int32_t port() const { return port_; }

 private:
  RpcServer() = default;

  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;
  std::string address_;
  int32_t port_ = 0;
  std::vector<std::string> names_;
  bool shut_down_ = false;
};

}  // namespace baton
