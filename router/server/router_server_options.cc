#include "router/server/router_server_options.h"

#include "common/status_macros.h"
#include "security/listen_policy.h"

namespace baton {

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
