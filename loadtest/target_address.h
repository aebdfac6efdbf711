// Parses the address of a load test's target: grpc://HOST:PORT or http://HOST:PORT/v1.
//
// Thread safety: pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/host_port.h"

namespace baton {

struct TargetAddress {
  bool is_http = false;
  HostPort host_port;  // the port of http is 80 if it is not given
  std::string path;    // "/v1", without a slash at its end; empty for gRPC
};

// InvalidArgument names the text and the two forms.
absl::StatusOr<TargetAddress> ParseTargetAddress(const std::string& text);

}  // namespace baton
