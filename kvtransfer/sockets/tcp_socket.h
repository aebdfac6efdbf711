// Non-blocking TCP sockets as Status-returning functions.
//
// Thread safety: functions are safe from any thread.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_descriptor.h"

namespace baton {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  std::string host() const;  // numeric
  uint16_t port() const;
};

// Parses "tcp:HOST:PORT" with a numeric host ("tcp:10.0.0.7:9000", "tcp:[::1]:9000").
// InvalidArgument otherwise. Names are refused because looking them up would delay transfers.
absl::StatusOr<SocketAddress> ParseTcpAddress(const std::string& address);
std::string FormatTcpAddress(const SocketAddress& address);
// Resolves "HOST:PORT"; the host may be a name. May block on a name service.
absl::StatusOr<SocketAddress> ResolveHostPort(const std::string& host_port);
// Resolves `host` and adds `port`. May block on a name service.
absl::StatusOr<SocketAddress> ResolveHost(const std::string& host, uint16_t port);
// True for 0.0.0.0 and ::, to which peers cannot connect.
bool IsWildcard(const SocketAddress& address);

absl::StatusOr<FileDescriptor> ListenTcp(const SocketAddress& address);
absl::StatusOr<SocketAddress> LocalAddress(const FileDescriptor& socket);
// Returns nothing if no connection waits. ResourceExhausted if the process has no descriptor left.
absl::StatusOr<std::optional<FileDescriptor>> AcceptTcp(const FileDescriptor& listener);
// Begins to connect. When the socket becomes writable, ConnectResult returns the outcome.
absl::StatusOr<FileDescriptor> StartConnectTcp(const SocketAddress& address);
absl::Status ConnectResult(const FileDescriptor& socket);

// Returns "WHAT: strerror(errno)" as Unavailable.
absl::Status SocketError(const std::string& what);

}  // namespace baton
