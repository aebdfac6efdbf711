// What TLS connections of one kind share: certificate, key, authorities, and rules for the peer.
// Only TLS 1.3. gRPC does not use this: it reads the files itself (rpc/tls_credentials.h).
//
// Thread safety: a context is immutable. TlsContextSource: every function, from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "security/caller.h"
#include "security/file_stamp.h"
#include "security/tls_files.h"

struct ssl_ctx_st;  // SSL_CTX
struct x509_st;     // X509

namespace baton {

enum class TlsSide : uint8_t { kServer, kClient };

struct TlsRules {
  TlsSide side = TlsSide::kServer;
  // Checks the chain of the peer's certificate. A server then demands a certificate.
  bool verify_peer = true;
  std::optional<CallerRole> role = {};  // the peer's certificate must have this role
  // For few connections that move many bytes: each reads several records at once, into a larger
  // buffer.
  bool bulk = false;
};

// Stamps of the certificate, the key and the authorities.
using TlsFileStamps = std::array<FileStamp, 3>;

class TlsContext {
 public:
  // A client without `files.certificate` has no certificate. Without `files.authorities`, the
  // system's authorities count. NotFound: a file cannot be read. InvalidArgument: a file is wrong,
  // key and certificate do not belong together, or the certificate has expired. If a file
  // with certificate and key is replaced by renaming, this takes its old content or its new one.
  // Separate files may not match until both are replaced.
  static absl::StatusOr<std::shared_ptr<const TlsContext>> Load(const TlsFiles& files,
                                                                const TlsRules& rules);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  ssl_ctx_st* native() const { return context_; }
  const TlsRules& rules() const { return rules_; }

 private:
  TlsContext(ssl_ctx_st* context, const TlsRules& rules) : context_(context), rules_(rules) {}
  static absl::StatusOr<std::shared_ptr<const TlsContext>> LoadOnce(const TlsFiles& files,
                                                                    const TlsRules& rules);

  ssl_ctx_st* const context_;
  const TlsRules rules_;
};

// Returns the URI names of a certificate.
std::vector<std::string> UriNames(const x509_st* certificate);

// Returns the newest context of files that may be replaced. While new files are wrong, the earlier
// context stays, and the log says why.
class TlsContextSource {
 public:
  // Errors as TlsContext::Load.
  static absl::StatusOr<std::unique_ptr<TlsContextSource>> Open(const TlsFiles& files,
                                                                const TlsRules& rules);

  // Looks at the files at most once a second.
  std::shared_ptr<const TlsContext> Newest();

 private:
  TlsContextSource(TlsFiles files, const TlsRules& rules)
      : files_(std::move(files)), rules_(rules) {}

  const TlsFiles files_;
  const TlsRules rules_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::shared_ptr<const TlsContext> context_;
  TlsFileStamps stamps_;
  int64_t looked_s_ = 0;
};

}  // namespace baton
