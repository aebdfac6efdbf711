#include "router/server/router_server_options.h"

#include <string>

#include "common/check.h"
#include "common/status_macros.h"
#include "security/listen_policy.h"
#include "security/own_certificate.h"

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

void LogSecurityWarnings(const RouterServerOptions& options) {
  for (const std::string& warning :
       OwnCertificateWarnings(options.server.tls, CallerRole::kRouter)) {
    LOG(WARNING) << warning;
  }
  if (!options.api_keys.empty()) return;
  LOG_IF(WARNING, options.server.grpc_public)
      << "--grpc-public without --api-keys: everyone who reaches the gRPC port is served";
  LOG_IF(WARNING, !options.http.listen.empty() && options.http.tls.any())
      << "--http-listen without --api-keys: everyone who reaches the HTTP port is served";
}

}  // namespace baton
