// Settings of a complete router: those of both edges and its own.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <string>

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
};
inline void RegisterSettings(RouterServerOptions& options, SettingList& settings) {
  RegisterSettings(options.server, settings);
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
      "one. Empty: off.");
  RegisterSettings(options.tracing, settings);
}

}  // namespace baton
