// Time limits and the connection limit of a transport over sockets.
#pragma once

#include <cstdint>

namespace baton {

// Timeouts and limits of a socket transport. The defaults detect a dead peer within about a second.
struct TcpOptions {
  int64_t connect_timeout_ms = 1000;
  int64_t handshake_timeout_ms = 1000;
  // From a frame's first byte to its last. Payloads get more time according to their size.
  int64_t frame_timeout_ms = 2000;
  int64_t ping_interval_ms = 250;     // while transfers are open
  int64_t silence_timeout_ms = 1000;  // while transfers are open
  int64_t idle_timeout_ms = 60'000;   // for an accepted connection without transfers
  // Limit of accepted connections. A new one replaces the oldest one that has never named an
  // expected transfer. If there is none, the new one is closed at once.
  int32_t max_connections = 1024;
  // Limit of accepted connections whose handshake is not complete: each may have TLS state of about
  // 110 KB. A new one replaces the oldest one.
  int32_t max_opening = 256;
};

}  // namespace baton
