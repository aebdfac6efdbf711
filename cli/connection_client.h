// What client commands need to connect over gRPC, from their flags.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cli/connection_flags.h"

namespace baton {

struct ClientConnection {
  std::shared_ptr<grpc::ChannelCredentials> to_routers = {};  // null: no encryption
  std::shared_ptr<grpc::ChannelCredentials> to_workers = {};
  std::string api_key = {};  // empty: none
};

// May start threads of gRPC, so a command that handles signals creates its Termination before.
// InvalidArgument and NotFound as CheckConnectionFlags and ReadApiKey. A key without encryption is
// refused, because everyone on the way could read it.
absl::StatusOr<ClientConnection> OpenConnection(const ConnectionFlags& flags);

// The process that a command calls.
struct CalledProcess {
  const char* kind;            // "router" or "worker"
  const char* option;          // that gives its address
  const char* missing_advice;  // if no process answers
  const char* address_advice;  // if the address is wrong
};

// Returns the failure of a call over `channel` with a message that names the address and says what
// to do: no process of this kind answers there, it is lost, its host is unknown, its certificate is
// not valid, or the port is for HTTP or TLS. Returns an error of the process itself as it is.
absl::Status ExplainFailure(const CalledProcess& process, const std::string& address,
                            grpc::Channel& channel, absl::Status failure);

}  // namespace baton
