#include "security/listen_policy.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>

#include "common/host_port.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

bool IsLoopbackAddress(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
  }
  if (address->sa_family != AF_INET6) return false;
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

}  // namespace

bool IsLoopbackHost(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if (!IsLoopbackAddress(at->ai_addr)) return false;
  }
  return true;
}

absl::Status CheckPlaintextListen(std::string_view option, const std::string& listen,
                                  std::string_view encrypt_with) {
  if (listen.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const HostPort where, ParseHostPort(listen));
  if (IsLoopbackHost(where.host)) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(
      option, " ", listen,
      " is reachable from other machines, and it would not be encrypted. Give ", encrypt_with,
      ", or --plaintext if the network is trusted: everyone there can read and call this port"));
}

}  // namespace baton
