// Converts between absl::Status and grpc::Status, which use the same code numbers.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace baton {

// Messages are truncated to this size, because they are sent in a header.
inline constexpr size_t kMaxStatusMessageBytes = 2048;

// Message for a call that the process does not know; gRPC gives none.
inline constexpr char kUnknownCallMessage[] =
    "the process at this address does not serve this call: it is of another kind or older";

grpc::Status ToGrpcStatus(const absl::Status& status);
// A code outside the known range becomes Unknown.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace baton
