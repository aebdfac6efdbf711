#include "security/tls_files.h"

#include <memory>

#include "common/status_macros.h"
#include "security/tls_context.h"

namespace baton {

void RegisterSettings(TlsFiles& files, SettingList& settings) {
  settings.Add("tls-cert", &files.certificate,
               "PEM file with this process's certificate, for gRPC and KV transfers. A URI name in "
               "it gives its role. Empty: no encryption.",
               "FILE");
  settings.Add("tls-key", &files.key,
               "PEM file with the certificate's key. Empty: the key is in the file of --tls-cert.",
               "FILE");
  settings.Add("tls-ca", &files.authorities,
               "PEM file with the authorities whose certificates the fleet and its clients have.",
               "FILE");
}

absl::Status CheckFleetTls(const TlsFiles& files) {
  if (!files.any()) return absl::OkStatus();
  if (files.certificate.empty())
    return absl::InvalidArgumentError("--tls-cert is missing: --tls-key and --tls-ca need it");
  if (files.authorities.empty())
    return absl::InvalidArgumentError("--tls-ca is missing: --tls-cert needs it");
  return TlsContext::Load(files, {.side = TlsSide::kServer, .verify_peer = true}).status();
}

}  // namespace baton
