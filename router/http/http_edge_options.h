// Settings of the router's HTTP edge.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>
#include <string>

#include "common/settings.h"
#include "security/tls_files.h"

namespace baton {

struct HttpEdgeOptions {
  std::string listen = {};         // HOST:PORT; empty: no HTTP
  std::string allow_origins = {};  // as HttpServerOptions::allow_origins
  int64_t timeout_ms = 600'000;
  int64_t keepalive_ms = 15'000;
  int32_t max_connections = 16'384;
  std::string served_model_names = {};  // separated by commas
  TlsFiles tls = {};                    // without authorities; no file: no encryption
};
void RegisterSettings(HttpEdgeOptions& options, SettingList& settings);

}  // namespace baton
