#include "http/socket_options.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace baton {
namespace {

int Get(const FileDescriptor& socket, int level, int option) {
  int value = 0;
  socklen_t length = sizeof(value);
  EXPECT_EQ(getsockopt(socket.get(), level, option, &value, &length), 0);
  return value;
}

TEST(SetHttpSocketOptions, ADeadPeerIsFoundWithinTheTimeout) {
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  SetHttpSocketOptions(socket, 30'000);
  EXPECT_EQ(Get(socket, SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(Get(socket, IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(Get(socket, IPPROTO_TCP, TCP_USER_TIMEOUT), 30'000);
  const int probing_s =
      Get(socket, IPPROTO_TCP, TCP_KEEPIDLE) +
      Get(socket, IPPROTO_TCP, TCP_KEEPINTVL) * Get(socket, IPPROTO_TCP, TCP_KEEPCNT);
  EXPECT_LE(probing_s, 30);
}

}  // namespace
}  // namespace baton
