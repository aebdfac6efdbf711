// Settings of a complete router: those of both edges and its own.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/settings.h"
#include "router/http/http_edge_options.h"
#include "router/router_options.h"
#include "rpc/rpc_server_options.h"
#include "tracing/tracing_options.h"

namespace baton {

struct RouterServerOptions {
  RpcServerOptions server;
  RouterOptions router;
  HttpEdgeOptions http;
  std::string metrics_listen = {};  // HOST:PORT; empty: no metrics are served
  TracingOptions tracing = {};
  std::string api_keys = {};  // file (security/api_key_file.h); empty: clients need no key
};
inline void RegisterSettings(RouterServerOptions& options, SettingList& settings) {
  RegisterSettings(options.server, settings);
  settings.Add("grpc-public", &options.server.grpc_public,
               "Lets clients without certificate use the gRPC port, over TLS. Debian's gRPC lacks "
               "security fixes, so give untrusted clients the HTTP port.");
  settings.Add("api-keys", &options.api_keys,
               "File with the API keys of clients, a JSON object a line (see `baton keys new`). It "
               "is read again when it changes. Empty: clients need no key.",
               "FILE");
  RegisterSettings(options.router, settings);
  RegisterSettings(options.http, settings);
  settings.Add(
      "max-connection-age-ms", &options.server.max_connection_age_ms, 0, 86'400'000,
      "Milliseconds after which a gRPC connection gets no new calls. Its client then looks "
      "up the router's name again and finds new routers. Running calls end normally. 0: "
      "no limit.");
  settings.Add(
      "metrics-listen", &options.metrics_listen,
      "HOST:PORT for /metrics, /livez, /readyz and /targets over HTTP; port 0 picks a free "
      "one. Empty: off.",
      "HOST:PORT");
  RegisterSettings(options.tracing, settings);
}

// Checks the files of TLS and keys, and that no port is reachable from other machines without
// encryption, except for metrics and probes. InvalidArgument or NotFound with the option and what
// to do.
absl::Status CheckRouterSecurity(const RouterServerOptions& options);
// Logs a warning for a certificate that peers may refuse, and for ports that serve everyone.
// REQUIRES: CheckRouterSecurity is OK.
void LogSecurityWarnings(const RouterServerOptions& options);

}  // namespace baton
