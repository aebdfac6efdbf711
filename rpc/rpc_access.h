// Applies the access table (security/access_table.h) to gRPC calls.
//
// Thread safety: every function, from any thread.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/security/auth_metadata_processor.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "security/caller.h"

namespace baton {

// Who makes a call, as far as its connection says.
struct RpcCaller {
  bool encrypted = false;
  // From the certificate. Without encryption: nothing.
  Caller caller;
};
RpcCaller CallerOfCall(const grpc::ServerContextBase& context);

// Checks each call of an encrypted server before a service sees it. Only the method and the
// certificate count; no other metadata is read.
class RpcAccessCheck final : public grpc::AuthMetadataProcessor {
 public:
  // `anonymous`: a caller without a role in a certificate may call the methods of the Inference
  // service. REQUIRES: their handlers then ask for an API key (router/grpc/client_access.h).
  explicit RpcAccessCheck(bool anonymous) : anonymous_(anonymous) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed, OutputMetadata* response) override;

 private:
  const bool anonymous_;
};

// Internal if a method of one of these services ("baton.v1.Worker") has no row in the table. Names
// without a service are skipped.
absl::Status CheckMethodsHaveRows(const std::vector<std::string>& services);

}  // namespace baton
