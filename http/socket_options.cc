#include "http/socket_options.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

namespace baton {
namespace {

constexpr int kSendBufferBytes = 128 << 10;
constexpr int kProbes = 3;

void Set(const FileDescriptor& socket, int level, int option, int value) {
  setsockopt(socket.get(), level, option, &value, sizeof(value));
}

}  // namespace

void SetHttpSocketOptions(const FileDescriptor& socket, int64_t peer_timeout_ms) {
  const int timeout_ms = static_cast<int>(std::clamp<int64_t>(peer_timeout_ms, 1000, 1 << 30));
  // The first probe goes out after half of the time.
  const int idle_s = std::max(1, timeout_ms / 2000);
  Set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(socket, IPPROTO_TCP, TCP_KEEPIDLE, idle_s);
  Set(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, idle_s / kProbes));
  Set(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  Set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, timeout_ms);
  Set(socket, SOL_SOCKET, SO_SNDBUF, kSendBufferBytes);
}

}  // namespace baton
