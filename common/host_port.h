// "HOST:PORT", as every option and address is written: "gpu-3:8090", "10.0.0.7:8090",
// "[::1]:8090". An IPv6 address stands in brackets where a port follows, and without them where it
// is a host alone: what is handed to a resolver.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton {

struct HostPort {
  std::string host;  // without brackets
  int32_t port = 0;  // 0 to 65535
};

// InvalidArgument names the text, and says where brackets are missing.
absl::StatusOr<HostPort> ParseHostPort(const std::string& text);
// As ParseHostPort, for an option that takes one to connect to: port 0 is refused too.
absl::Status CheckHostPort(const std::string& text);

// The inverse. Brackets around a host that has a colon and none yet.
std::string JoinHostPort(const std::string& host, int32_t port);

// Where others are to connect: `text` is "HOST:PORT", or a host alone ("[::1]", "::1") beside
// `port`.
HostPort AdvertisedHostPort(const std::string& text, int32_t port);

// Whether a listener there takes connections to any address of the machine, so that it names none
// to which others can connect.
bool IsWildcardHost(const std::string& host);

}  // namespace baton
