// Settings of a complete router: those of both edges and its own.
//
// Thread safety: plain data and pure functions.
#pragma once

#include "common/settings.h"
#include "router/http/http_edge_options.h"
#include "router/router_options.h"
#include "rpc/rpc_server_options.h"

namespace baton {

struct RouterServerOptions {
  RpcServerOptions server;
  RouterOptions router;
  HttpEdgeOptions http;
};
inline void RegisterSettings(RouterServerOptions& options, SettingList& settings) {
  RegisterSettings(options.server, settings);
  RegisterSettings(options.router, settings);
  RegisterSettings(options.http, settings);
}

}  // namespace baton
