// absl::Status and grpc::Status, which number their codes alike.
//
// Thread safety: pure functions.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace baton {

// Messages are cut at kMaxStatusMessageBytes: they travel as a header.
inline constexpr size_t kMaxStatusMessageBytes = 2048;

grpc::Status ToGrpcStatus(const absl::Status& status);
// A code outside the known range becomes Unknown.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace baton
