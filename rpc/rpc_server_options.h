// Settings of a gRPC server. Apart from the server itself, so that a program's
// options do not bring gRPC with them.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "common/settings.h"

namespace baton {

struct RpcServerOptions {
  std::string listen = "127.0.0.1:0";     // HOST:PORT; port 0 picks one
  int32_t max_concurrent_streams = 1024;  // of one connection
  int32_t max_active_requests = 1024;     // of the process
  int64_t memory_mib = 1024;              // for gRPC's own buffers
  int32_t max_receive_bytes = 16 << 20;   // of one message; set by programs, no user setting
  int64_t drain_ms = 5000;                // how long shutdown waits for running requests
  // Life of the peers: a connection on which nothing came for keepalive_ms is asked, and cut when
  // there is no answer for keepalive_timeout_ms; its calls are then cancelled.
  int32_t keepalive_ms = 10'000;
  int32_t keepalive_timeout_ms = 5'000;
  // A connection without a call for so long is closed; gRPC's clients connect again when they need
  // one. Set by programs, no user setting.
  int32_t idle_connection_ms = 300'000;
};
void RegisterSettings(RpcServerOptions& options, SettingList& settings);

}  // namespace baton
