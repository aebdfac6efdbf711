#include "cli/connection_client.h"

#include "common/status_macros.h"
#include "rpc/tls_credentials.h"

namespace baton {

absl::StatusOr<ClientConnection> OpenConnection(const ConnectionFlags& flags) {
  RETURN_IF_ERROR(CheckConnectionFlags(flags));
  ClientConnection out;
  ASSIGN_OR_RETURN(out.api_key, ReadApiKey(flags));
  if (!flags.tls.any()) {
    if (out.api_key.empty()) return out;
    return absl::InvalidArgumentError(
        "--api-key-file needs --tls-ca: a key must not travel without encryption");
  }
  out.to_routers = ClientCredentials(flags.tls);
  out.to_workers = FleetCredentials(flags.tls, CallerRole::kWorker);
  return out;
}

}  // namespace baton
