// Parses and formats "HOST:PORT", the form of every address option: "gpu-3:8090", "10.0.0.7:8090",
// "[::1]:8090". An IPv6 address needs brackets if a port follows. Without a port it has none, as
// resolvers expect.
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

// InvalidArgument names the text and says where brackets are missing.
absl::StatusOr<HostPort> ParseHostPort(const std::string& text);
// As ParseHostPort, for an address to connect to: port 0 is refused too.
absl::Status CheckHostPort(const std::string& text);

// Inverse of ParseHostPort. Adds brackets around a host that has a colon and no brackets.
std::string JoinHostPort(const std::string& host, int32_t port);

// Returns the address at which others connect. `text` is "HOST:PORT", or a host alone ("[::1]",
// "::1") to combine with `port`.
HostPort AdvertisedHostPort(const std::string& text, int32_t port);

// Returns true if a listener at `host` accepts connections to every address of the machine. Others
// cannot connect to such a host name.
bool IsWildcardHost(const std::string& host);

}  // namespace baton
