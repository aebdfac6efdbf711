#include "kvtransfer/sockets/transfer_tls.h"

#include "common/status_macros.h"

namespace baton {

absl::StatusOr<std::unique_ptr<TransferTls>> TransferTls::Open(const TlsFiles& files) {
  TlsRules rules = {
      .side = TlsSide::kServer, .verify_peer = true, .role = CallerRole::kWorker, .bulk = true};
  std::unique_ptr<TransferTls> tls(new TransferTls);
  ASSIGN_OR_RETURN(tls->accepts_, TlsContextSource::Open(files, rules));
  rules.side = TlsSide::kClient;
  ASSIGN_OR_RETURN(tls->connects_, TlsContextSource::Open(files, rules));
  return tls;
}

}  // namespace baton
