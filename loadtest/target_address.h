// Parses the address of a load test's target: grpc://HOST:PORT, http://HOST:PORT/v1 or
// https://HOST:PORT/v1.
//
// Thread safety: pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/host_port.h"

namespace baton {

struct TargetAddress {
  bool is_http = false;
  bool is_https = false;  // then is_http is true too
  HostPort host_port;     // without a port: 80 for http, 443 for https
  std::string path;       // "/v1", without a slash at its end; empty for gRPC
};

// InvalidArgument names the text and the forms.
absl::StatusOr<TargetAddress> ParseTargetAddress(const std::string& text);

}  // namespace baton
