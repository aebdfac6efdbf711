#include "security/tls_context.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <chrono>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

// Loading is tried again if files were replaced meanwhile.
constexpr int kMostLoads = 5;
// The cipher that processors compute fastest comes first.
constexpr char kCiphers[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
// One read of the socket fetches several records.
constexpr size_t kReadAheadBytes = size_t{64} << 10;

// Returns OpenSSL's oldest error, and forgets all.
std::string OpenSslReason() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "unknown error" : reason;
}

absl::Status BadFile(const char* use, const std::string& path) {
  const bool readable = StampOf(path).bytes >= 0;
  const std::string what =
      StrCat("TLS: ", use, " ", path, ": ", readable ? OpenSslReason() : "the file cannot be read");
  ERR_clear_error();
  return readable ? absl::InvalidArgumentError(what) : absl::NotFoundError(what);
}

TlsFileStamps StampsOf(const TlsFiles& files) {
  return {StampOf(files.certificate), StampOf(files.key), StampOf(files.authorities)};
}

int64_t NowSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Passwords of keys are not asked for: no one may be at the terminal.
int NoPassword(char*, int, int, void*) { return 0; }

absl::Status TakeCertificate(SSL_CTX* context, const TlsFiles& files) {
  if (files.certificate.empty()) return absl::OkStatus();
  if (SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) != 1) {
    return BadFile("certificate", files.certificate);
  }
  if (SSL_CTX_use_PrivateKey_file(context, files.key_file().c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return BadFile("key", files.key_file());
  }
  const X509* own = SSL_CTX_get0_certificate(context);
  if (X509_cmp_current_time(X509_get0_notAfter(own)) < 0) {
    return absl::InvalidArgumentError(
        StrCat("TLS: the certificate ", files.certificate, " has expired"));
  }
  return absl::OkStatus();
}

absl::Status TakeAuthorities(SSL_CTX* context, const TlsFiles& files, const TlsRules& rules) {
  if (!rules.verify_peer) return absl::OkStatus();
  if (files.authorities.empty()) {
    SSL_CTX_set_default_verify_paths(context);
    return absl::OkStatus();
  }
  if (SSL_CTX_load_verify_locations(context, files.authorities.c_str(), nullptr) != 1) {
    return BadFile("authorities", files.authorities);
  }
  if (rules.side == TlsSide::kServer) {
    SSL_CTX_set_client_CA_list(context, SSL_load_client_CA_file(files.authorities.c_str()));
  }
  return absl::OkStatus();
}

// OpenSSL calls this for each certificate of the peer's chain. `ok`: its own checks.
int CheckRole(int ok, X509_STORE_CTX* store) {
  if (ok != 1 || X509_STORE_CTX_get_error_depth(store) != 0) return ok;
  const auto* session =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  const auto* role = static_cast<const CallerRole*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(session)));
  const Caller caller = CallerOfUris(UriNames(X509_STORE_CTX_get_current_cert(store)));
  if (caller.roles.Has(*role)) return 1;
  X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
  return 0;
}

void SetModes(SSL_CTX* context) {
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(context, kCiphers);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                SSL_MODE_RELEASE_BUFFERS);
  // A connection that is not closed in TLS's way counts as lost, as a plain one does.
  SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION);
  // Tickets would let a client come back for hours after its certificate was replaced.
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_default_passwd_cb(context, &NoPassword);
}

}  // namespace

std::vector<std::string> UriNames(const X509* certificate) {
  std::vector<std::string> uris;
  auto* const names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* text = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                      static_cast<size_t>(ASN1_STRING_length(text)));
  }
  GENERAL_NAMES_free(names);
  return uris;
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

// OpenSSL opens the file of the certificate and that of the key one after the other, even if they
// are the same. So the two may not belong together if the files are replaced at that moment.
absl::StatusOr<std::shared_ptr<const TlsContext>> TlsContext::Load(const TlsFiles& files,
                                                                   const TlsRules& rules) {
  for (int load = 1;; ++load) {
    const TlsFileStamps before = StampsOf(files);
    absl::StatusOr<std::shared_ptr<const TlsContext>> loaded = LoadOnce(files, rules);
    if (loaded.ok() || load == kMostLoads || StampsOf(files) == before) return loaded;
  }
}

absl::StatusOr<std::shared_ptr<const TlsContext>> TlsContext::LoadOnce(const TlsFiles& files,
                                                                       const TlsRules& rules) {
  ERR_clear_error();
  const bool serves = rules.side == TlsSide::kServer;
  SSL_CTX* const native = SSL_CTX_new(serves ? TLS_server_method() : TLS_client_method());
  if (native == nullptr) return absl::InternalError(StrCat("TLS: ", OpenSslReason()));
  const std::shared_ptr<TlsContext> context(new TlsContext(native, rules));
  SetModes(native);
  if (rules.bulk) {
    SSL_CTX_set_read_ahead(native, 1);
    SSL_CTX_set_default_read_buffer_len(native, kReadAheadBytes);
  }
  RETURN_IF_ERROR(TakeCertificate(native, files));
  RETURN_IF_ERROR(TakeAuthorities(native, files, rules));
  const int verify =
      rules.verify_peer ? SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT : SSL_VERIFY_NONE;
  if (rules.role.has_value()) {
    SSL_CTX_set_app_data(native, const_cast<CallerRole*>(&*context->rules_.role));
  }
  SSL_CTX_set_verify(native, verify, rules.role.has_value() ? &CheckRole : nullptr);
  return std::shared_ptr<const TlsContext>(context);
}

absl::StatusOr<std::unique_ptr<TlsContextSource>> TlsContextSource::Open(const TlsFiles& files,
                                                                         const TlsRules& rules) {
  std::unique_ptr<TlsContextSource> source(new TlsContextSource(files, rules));
  source->stamps_ = StampsOf(files);
  source->looked_s_ = NowSeconds();
  ASSIGN_OR_RETURN(source->context_, TlsContext::Load(files, rules));
  return source;
}

std::shared_ptr<const TlsContext> TlsContextSource::Newest() {
  std::lock_guard lock(mutex_);
  const int64_t now_s = NowSeconds();
  if (now_s == looked_s_) return context_;
  looked_s_ = now_s;
  const TlsFileStamps stamps = StampsOf(files_);
  if (stamps == stamps_) return context_;
  absl::StatusOr<std::shared_ptr<const TlsContext>> loaded = TlsContext::Load(files_, rules_);
  if (loaded.ok()) {
    stamps_ = stamps;
    context_ = *std::move(loaded);
    LOG(INFO) << "TLS: new connections use the new files of " << files_.certificate;
  } else {
    // Tried again, because a file may be written after its name has appeared.
    LOG_EVERY_T(ERROR, 10) << "TLS: the new files are not used: " << loaded.status().message();
  }
  return context_;
}

}  // namespace baton
