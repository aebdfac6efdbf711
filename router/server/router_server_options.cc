#include "router/server/router_server_options.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/host_port.h"
#include "common/status_macros.h"
#include "security/listen_policy.h"

namespace baton {

absl::Status CheckAddresses(const RouterServerOptions& options) {
  for (const auto& [name, text] : {std::pair("--listen", &options.server.listen),
                                   std::pair("--http-listen", &options.http.listen),
                                   std::pair("--metrics-listen", &options.metrics_listen),
                                   std::pair("--otlp-endpoint", &options.tracing.otlp_endpoint)}) {
    if (text->empty() && text != &options.server.listen) continue;
    if (const absl::Status status = ParseHostPort(*text).status(); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRouterSecurity(const RouterServerOptions& options) {
  RETURN_IF_ERROR(CheckServerSecurity(options.server));
  const TlsFiles& http = options.http.tls;
  if (http.any()) {
    if (http.certificate.empty())
      return absl::InvalidArgumentError("--http-tls-cert is missing: --http-tls-key needs it");
    return absl::OkStatus();  // HttpEdge::Start checks the files
  }
  if (options.server.plaintext) return absl::OkStatus();
  return CheckPlaintextListen("--http-listen", options.http.listen, "--http-tls-cert");
}

}  // namespace baton
