#include "security/own_certificate.h"

#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>

#include "common/str_cat.h"
#include "security/tls_context.h"

namespace baton {
namespace {

// Returns why the authorities of `context` do not vouch for its certificate; empty: they do.
std::string ReasonAgainst(SSL_CTX* context) {
  STACK_OF(X509)* chain = nullptr;
  SSL_CTX_get0_chain_certs(context, &chain);
  const std::unique_ptr<X509_STORE_CTX, decltype(&X509_STORE_CTX_free)> check(X509_STORE_CTX_new(),
                                                                              &X509_STORE_CTX_free);
  if (X509_STORE_CTX_init(check.get(), SSL_CTX_get_cert_store(context),
                          SSL_CTX_get0_certificate(context), chain) != 1) {
    return "it cannot be checked";
  }
  if (X509_verify_cert(check.get()) == 1) return "";
  return X509_verify_cert_error_string(X509_STORE_CTX_get_error(check.get()));
}

}  // namespace

std::vector<std::string> OwnCertificateWarnings(const TlsFiles& files, CallerRole role) {
  if (!files.any()) return {};
  const auto context = TlsContext::Load(files, {.side = TlsSide::kServer, .verify_peer = true});
  if (!context.ok()) return {};
  std::vector<std::string> out;
  SSL_CTX* const native = (*context)->native();
  const RoleSet roles = CallerOfUris(UriNames(SSL_CTX_get0_certificate(native))).roles;
  if (!roles.Has(role)) {
    out.push_back(StrCat("--tls-cert ", files.certificate, " has ",
                         roles.empty() ? "no role" : StrCat("the role ", RoleNames(roles)),
                         ", not ", CallerRoleName(role), ": other processes will refuse it"));
  }
  if (const std::string reason = ReasonAgainst(native); !reason.empty()) {
    out.push_back(StrCat("--tls-cert ", files.certificate, " is not valid under --tls-ca ",
                         files.authorities, " (", reason,
                         "): processes that trust the same authorities will refuse it"));
  }
  return out;
}

}  // namespace baton
