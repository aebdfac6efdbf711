// TLS between the transports of workers, over TCP: both sides show a certificate, and each checks
// that the other's is a worker's.
//
// Thread safety: as TlsContextSource.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "security/tls_context.h"
#include "security/tls_files.h"
#include "security/tls_session.h"

namespace baton {

class TransferTls {
 public:
  // Errors as TlsContext::Load.
  static absl::StatusOr<std::unique_ptr<TransferTls>> Open(const TlsFiles& files);

  // Returns the session of a connection that was accepted, or opened. `socket`: see TlsSession.
  std::unique_ptr<TlsSession> Accept(int socket) {
    return std::make_unique<TlsSession>(*accepts_->Newest(), socket);
  }
  std::unique_ptr<TlsSession> Connect(int socket) {
    return std::make_unique<TlsSession>(*connects_->Newest(), socket);
  }

 private:
  TransferTls() = default;

  std::unique_ptr<TlsContextSource> accepts_;
  std::unique_ptr<TlsContextSource> connects_;
};

}  // namespace baton
