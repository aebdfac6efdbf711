// Settings of a gRPC server. This header is separate from the server so that programs' options do
// not include gRPC.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/settings.h"
#include "rpc/reset_budget.h"
#include "security/tls_files.h"

namespace baton {

struct RpcServerOptions {
  std::string listen = "127.0.0.1:0";     // HOST:PORT; port 0 picks one
  int32_t max_concurrent_streams = 1024;  // per connection
  int32_t max_active_requests = 1024;     // per process
  int64_t memory_mib = 1024;              // for gRPC's own buffers
  int32_t max_receive_bytes = 16 << 20;   // per message; set by programs, not a user setting
  int64_t drain_ms = 5000;                // how long shutdown waits for running requests
  // How long a process that is not ready any more still accepts requests, before it drains.
  int64_t shutdown_delay_ms = 0;
  // A connection of this age gets no new calls: its client connects again. 0: no limit. gRPC
  // changes the age by up to 10 %, so that connections do not end together.
  int32_t max_connection_age_ms = 0;
  // Failure detection of peers. After keepalive_ms without data the server pings the connection.
  // Without an answer for keepalive_timeout_ms it closes the connection and cancels the calls.
  int32_t keepalive_ms = 10'000;
  int32_t keepalive_timeout_ms = 5'000;
  // A connection without a call for this long is closed; gRPC clients reconnect when needed. Set by
  // programs, not a user setting.
  int32_t idle_connection_ms = 300'000;
  // Connections that reset calls faster are closed (reset_guard.h). `unanswered` is the number
  // besides max_concurrent_streams. Set by programs. A router cancels at a worker what all its
  // clients cancel, so workers allow more than routers.
  ResetLimits resets = {.unanswered = 8192, .per_second = 2000};
  TlsFiles tls = {};       // of this server, and of the process's channels to its fleet
  bool plaintext = false;  // the network is trusted: ports may be reachable without encryption
  // Clients need no certificate for the methods of clients. Only routers have this setting.
  bool grpc_public = false;
};
void RegisterSettings(RpcServerOptions& options, SettingList& settings);

// Checks the files of TLS, and that `listen` is encrypted if other machines reach it. For programs,
// at their start. InvalidArgument or NotFound with the option and what to do.
absl::Status CheckServerSecurity(const RpcServerOptions& options);

}  // namespace baton
