#include "common/listening_sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace baton {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<AddressList> Resolve(const HostPort& where) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(where.host.c_str(), std::to_string(where.port).c_str(), &hints, &found);
  if (error == 0) return AddressList(found, &freeaddrinfo);
  return absl::InvalidArgumentError(
      absl::StrCat("host \"", where.host, "\": ", gai_strerror(error)));
}

int32_t PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

void SetPort(sockaddr_storage& address, int32_t port) {
  auto& field = address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                              : reinterpret_cast<sockaddr_in*>(&address)->sin_port;
  field = htons(static_cast<uint16_t>(port));
}

// `port`: in: port to bind, 0 for any; out: port that was bound.
absl::StatusOr<FileDescriptor> Listen(const addrinfo& where, bool any_family, int32_t& port) {
  sockaddr_storage address{};
  std::memcpy(&address, where.ai_addr, where.ai_addrlen);
  if (port != 0) SetPort(address, port);
  FileDescriptor listener(socket(where.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  const int v6_only = any_family ? 0 : 1;
  if (listener.get() >= 0 && where.ai_family == AF_INET6) {
    setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only));
  }
  socklen_t length = where.ai_addrlen;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (listener.get() < 0 ||
      setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(listener.get(), raw, length) != 0 || listen(listener.get(), SOMAXCONN) != 0 ||
      getsockname(listener.get(), raw, &length) != 0) {
    return absl::UnavailableError(std::strerror(errno));
  }
  port = PortOf(address);
  return listener;
}

absl::StatusOr<ListeningSockets> ListenAtAddresses(const HostPort& where, bool any_family) {
  ASSIGN_OR_RETURN(const AddressList addresses, Resolve(where));
  ListeningSockets out{.sockets = {}, .port = where.port};
  absl::Status problem;
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    absl::StatusOr<FileDescriptor> listener = Listen(*at, any_family, out.port);
    if (listener.ok()) {
      out.sockets.push_back(*std::move(listener));
    } else {
      problem = listener.status();
    }
  }
  if (!out.sockets.empty()) {
    if (!problem.ok()) {
      LOG(WARNING) << "cannot listen on every address of " << where.host << " at port " << out.port
                   << ": " << problem.message();
    }
    return out;
  }
  return absl::UnavailableError(absl::StrCat(
      "cannot listen on ", JoinHostPort(where.host, where.port), ": ", problem.message()));
}

}  // namespace

absl::StatusOr<ListeningSockets> ListenAt(const HostPort& where) {
  if (IsWildcardHost(where.host)) {
    absl::StatusOr<ListeningSockets> any = ListenAtAddresses({"::", where.port}, true);
    if (any.ok() || where.host == "::") return any;  // else the machine has no IPv6
  }
  return ListenAtAddresses(where, false);
}

}  // namespace baton
