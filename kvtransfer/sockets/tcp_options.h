// Time limits and the connection limit of a transport over sockets.
#pragma once

#include <cstdint>

namespace baton {

// How long a transport over sockets waits for what. The defaults find a dead peer within about a
// second.
struct TcpOptions {
  int64_t connect_timeout_ms = 1000;
  int64_t handshake_timeout_ms = 1000;
  int64_t frame_timeout_ms =
      2000;  // from a frame's first byte to its last; payloads have more by their size
  int64_t ping_interval_ms = 250;     // while transfers are open
  int64_t silence_timeout_ms = 1000;  // nothing at all heard while transfers are open
  int64_t idle_timeout_ms = 60'000;   // an accepted connection is silent and has no transfer
  // Accepted ones. Another takes the place of the oldest that has never named a transfer that was
  // expected; where all have, it is closed at once.
  int32_t max_connections = 1024;
};

}  // namespace baton
