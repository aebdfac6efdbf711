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

// InvalidArgument and NotFound as CheckConnectionFlags and ReadApiKey. A key without encryption is
// refused, because everyone on the way could read it.
absl::StatusOr<ClientConnection> OpenConnection(const ConnectionFlags& flags);

}  // namespace baton
