#include "kvtransfer/sockets/tcp_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/host_port.h"
#include "common/status_macros.h"

namespace baton {
namespace {

constexpr char kTcpScheme[] = "tcp:";

absl::StatusOr<SocketAddress> Lookup(const HostPort& where, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(where.host.c_str(), std::to_string(where.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("host \"", where.host, "\"", (flags & AI_NUMERICHOST) != 0 ? " (numeric)" : "",
                     ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  return address;
}

void SetOption(const FileDescriptor& socket, int level, int option, int value) {
  setsockopt(socket.get(), level, option, &value, sizeof(value));
}

// Keepalive finds a peer that vanished from an idle connection within half a minute.
void Tune(const FileDescriptor& socket) {
  SetOption(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

const sockaddr* Raw(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

}  // namespace

std::string SocketAddress::host() const {
  char text[NI_MAXHOST] = "";
  getnameinfo(Raw(*this), length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

uint16_t SocketAddress::port() const {
  const uint16_t port = storage.ss_family == AF_INET6
                            ? reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port
                            : reinterpret_cast<const sockaddr_in*>(&storage)->sin_port;
  return ntohs(port);
}

absl::Status SocketError(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::StatusOr<SocketAddress> ParseTcpAddress(const std::string& address) {
  if (!address.starts_with(kTcpScheme)) {
    return absl::InvalidArgumentError(
        absl::StrCat("address \"", address, "\" does not start with ", kTcpScheme));
  }
  ASSIGN_OR_RETURN(const HostPort where, ParseHostPort(address.substr(sizeof(kTcpScheme) - 1)));
  if (where.port == 0) {
    return absl::InvalidArgumentError(absl::StrCat("address \"", address, "\" has port 0"));
  }
  return Lookup(where, AI_NUMERICHOST | AI_NUMERICSERV);
}

std::string FormatTcpAddress(const SocketAddress& address) {
  return absl::StrCat(kTcpScheme, JoinHostPort(address.host(), address.port()));
}

absl::StatusOr<SocketAddress> ResolveHostPort(const std::string& host_port) {
  ASSIGN_OR_RETURN(const HostPort where, ParseHostPort(host_port));
  return Lookup(where, AI_NUMERICSERV);
}

absl::StatusOr<SocketAddress> ResolveHost(const std::string& host, uint16_t port) {
  return Lookup({host, port}, AI_NUMERICSERV);
}

bool IsWildcard(const SocketAddress& address) { return IsWildcardHost(address.host()); }

absl::StatusOr<FileDescriptor> ListenTcp(const SocketAddress& address) {
  FileDescriptor listener(
      socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (listener.get() < 0) return SocketError("socket");
  SetOption(listener, SOL_SOCKET, SO_REUSEADDR, 1);
  const std::string name = FormatTcpAddress(address);
  if (bind(listener.get(), Raw(address), address.length) != 0) {
    return SocketError(absl::StrCat("bind to ", name));
  }
  if (listen(listener.get(), SOMAXCONN) != 0) return SocketError(absl::StrCat("listen at ", name));
  return listener;
}

absl::StatusOr<SocketAddress> LocalAddress(const FileDescriptor& socket) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.length) !=
      0) {
    return SocketError("getsockname");
  }
  return address;
}

absl::StatusOr<std::optional<FileDescriptor>> AcceptTcp(const FileDescriptor& listener) {
  FileDescriptor accepted(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (accepted.get() >= 0) {
    Tune(accepted);
    return std::optional<FileDescriptor>(std::move(accepted));
  }
  switch (errno) {
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
      return absl::ResourceExhaustedError(absl::StrCat("accept: ", std::strerror(errno)));
    default:
      // EAGAIN, or a connection that was closed before it was accepted.
      return std::optional<FileDescriptor>();
  }
}

absl::StatusOr<FileDescriptor> StartConnectTcp(const SocketAddress& address) {
  FileDescriptor connecting(
      socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (connecting.get() < 0) return SocketError("socket");
  Tune(connecting);
  if (connect(connecting.get(), Raw(address), address.length) != 0 && errno != EINPROGRESS) {
    return SocketError(absl::StrCat("connect to ", FormatTcpAddress(address)));
  }
  return connecting;
}

absl::Status ConnectResult(const FileDescriptor& socket) {
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("connect: ", std::strerror(error)));
}

}  // namespace baton
