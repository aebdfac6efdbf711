#include "security/trial_certificates.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/status/statusor.h"
#include "common/file_descriptor.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "security/caller.h"
#include "security/file_stamp.h"
#include "security/tls_context.h"

namespace baton {
namespace {

constexpr int32_t kAuthorityDays = 3650;
constexpr int64_t kSecondsPerDay = 86'400;
constexpr int64_t kClockSkewSeconds = 300;  // certificates are valid a little before now
constexpr CallerRole kRoles[] = {CallerRole::kRouter, CallerRole::kWorker, CallerRole::kOperator,
                                 CallerRole::kClient};

struct Free {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using Key = std::unique_ptr<EVP_PKEY, Free>;
using Certificate = std::unique_ptr<X509, Free>;
using Bytes = std::unique_ptr<BIO, Free>;

struct Identity {
  Key key;
  Certificate certificate;
};

absl::Status OpenSslFailed(const char* what) {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return absl::InternalError(StrCat(what, ": ", reason == nullptr ? "unknown error" : reason));
}

std::string InDirectory(const TrialCertificateOptions& options, const std::string& name) {
  return StrCat(options.directory, "/", name);
}

absl::Status AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  if (extension == nullptr) return OpenSslFailed("certificate extension");
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
  return absl::OkStatus();
}

struct Contents {
  std::string name;       // the common name
  std::string alt_names;  // "DNS:a,URI:b"; empty: none
  bool is_authority = false;
  bool serves = false;  // also as a server
  int32_t days = 0;
};

absl::Status AddExtensions(X509* certificate, X509* issuer, const Contents& contents) {
  const auto add = [&](int kind, const std::string& value) {
    return AddExtension(certificate, issuer, kind, value);
  };
  RETURN_IF_ERROR(add(NID_subject_key_identifier, "hash"));
  RETURN_IF_ERROR(add(NID_authority_key_identifier, "keyid:always"));
  if (contents.is_authority) {
    RETURN_IF_ERROR(add(NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
    return add(NID_key_usage, "critical,keyCertSign,cRLSign");
  }
  RETURN_IF_ERROR(add(NID_basic_constraints, "critical,CA:FALSE"));
  RETURN_IF_ERROR(add(NID_key_usage, "critical,digitalSignature"));
  RETURN_IF_ERROR(add(NID_ext_key_usage, contents.serves ? "serverAuth,clientAuth" : "clientAuth"));
  return add(NID_subject_alt_name, contents.alt_names);
}

// `issuer`: null for an authority, which signs itself.
absl::StatusOr<Identity> MakeIdentity(const Contents& contents, const Identity* issuer) {
  ERR_clear_error();
  Identity made{.key = Key(EVP_EC_gen("P-256")), .certificate = Certificate(X509_new())};
  if (made.key == nullptr || made.certificate == nullptr) return OpenSslFailed("key");
  X509* const certificate = made.certificate.get();
  X509_set_version(certificate, X509_VERSION_3);
  std::array<unsigned char, 16> serial;
  if (RAND_bytes(serial.data(), serial.size()) != 1) return OpenSslFailed("random bits");
  serial[0] =
      static_cast<unsigned char>((serial[0] & 0x3F) | 0x40);  // positive, without zeros in front
  BIGNUM* const number = BN_bin2bn(serial.data(), serial.size(), nullptr);
  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));
  BN_free(number);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -kClockSkewSeconds);
  X509_gmtime_adj(X509_getm_notAfter(certificate), contents.days * kSecondsPerDay);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(contents.name.c_str()), -1, -1,
                             0);
  X509* const signer = issuer == nullptr ? certificate : issuer->certificate.get();
  X509_set_issuer_name(certificate, X509_get_subject_name(signer));
  X509_set_pubkey(certificate, made.key.get());
  RETURN_IF_ERROR(AddExtensions(certificate, signer, contents));
  EVP_PKEY* const signs = issuer == nullptr ? made.key.get() : issuer->key.get();
  if (X509_sign(certificate, signs, EVP_sha256()) == 0) return OpenSslFailed("signature");
  return made;
}

std::string TakeText(BIO* bio) {
  char* text = nullptr;
  const long count = BIO_get_mem_data(bio, &text);
  return std::string(text, static_cast<size_t>(count));
}

std::string KeyText(EVP_PKEY* key) {
  const Bytes bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  return TakeText(bio.get());
}

std::string CertificateText(X509* certificate) {
  const Bytes bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), certificate);
  return TakeText(bio.get());
}

absl::Status FileFailed(const std::string& path) {
  return absl::UnavailableError(StrCat(path, ": ", std::strerror(errno)));
}

// Writes a new file and renames it, so that readers see the old content or the new one.
absl::Status WriteWhole(const std::string& path, const std::string& text, mode_t mode) {
  const std::string temporary = StrCat(path, ".new");
  const FileDescriptor file(
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
  if (file.get() < 0) return FileFailed(temporary);
  const ssize_t written = write(file.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size()) || fsync(file.get()) != 0 ||
      rename(temporary.c_str(), path.c_str()) != 0) {
    return FileFailed(temporary);
  }
  return absl::OkStatus();
}

// "IP:10.0.0.1" or "DNS:router.example". InvalidArgument: it would end the list or the line.
absl::StatusOr<std::string> AltName(const std::string& name) {
  const bool is_name = !name.empty() && name.size() <= 253 &&
                       name.find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                           "0123456789-._:*") == std::string::npos;
  if (!is_name) {
    return absl::InvalidArgumentError(
        StrCat("--name is \"", Printable(name), "\"; must be a DNS name or an IP address"));
  }
  ASN1_OCTET_STRING* const address = a2i_IPADDRESS(name.c_str());
  ASN1_OCTET_STRING_free(address);
  return StrCat(address != nullptr ? "IP:" : "DNS:", name);
}

absl::StatusOr<Contents> ContentsOf(const TrialCertificateOptions& options, CallerRole role) {
  Contents contents{.name = StrCat("baton ", CallerRoleName(role)),
                    .alt_names = StrCat("URI:", RoleUri(role, options.tenant.value_or(""))),
                    .is_authority = false,
                    .serves = role == CallerRole::kRouter || role == CallerRole::kWorker,
                    .days = options.days};
  if (role == CallerRole::kRouter) {
    const std::vector<std::string> local = {"localhost", "127.0.0.1", "::1"};
    for (const std::string& name : options.router_names.value_or(local)) {
      ASSIGN_OR_RETURN(const std::string alt_name, AltName(name));
      contents.alt_names += StrCat(",", alt_name);
    }
  }
  return contents;
}

absl::Status MakeLeaves(const TrialCertificateOptions& options, const Identity& authority) {
  const size_t tenant_bytes = options.tenant.value_or("").size();
  if (tenant_bytes > kMaxTenantBytes) {
    return absl::InvalidArgumentError(
        StrCat("--tenant has ", tenant_bytes, " bytes, must have at most ", kMaxTenantBytes));
  }
  for (const CallerRole role : kRoles) {
    ASSIGN_OR_RETURN(const Contents contents, ContentsOf(options, role));
    ASSIGN_OR_RETURN(const Identity leaf, MakeIdentity(contents, &authority));
    RETURN_IF_ERROR(WriteWhole(InDirectory(options, StrCat(CallerRoleName(role), ".pem")),
                               KeyText(leaf.key.get()) + CertificateText(leaf.certificate.get()),
                               0600));
  }
  return absl::OkStatus();
}

absl::StatusOr<Identity> ReadAuthority(const TrialCertificateOptions& options) {
  ERR_clear_error();
  const Bytes key_file(BIO_new_file(InDirectory(options, "ca.key").c_str(), "r"));
  const Bytes certificate_file(BIO_new_file(InDirectory(options, "ca.crt").c_str(), "r"));
  if (key_file == nullptr || certificate_file == nullptr) {
    ERR_clear_error();
    return absl::NotFoundError(StrCat(options.directory, " has no ca.crt and ca.key"));
  }
  Identity authority{.key = Key(PEM_read_bio_PrivateKey(key_file.get(), nullptr, nullptr, nullptr)),
                     .certificate = Certificate(
                         PEM_read_bio_X509(certificate_file.get(), nullptr, nullptr, nullptr))};
  if (authority.key == nullptr || authority.certificate == nullptr) {
    ERR_clear_error();
    return absl::InvalidArgumentError(
        StrCat("ca.crt or ca.key of ", options.directory, " is not in PEM form"));
  }
  return authority;
}

absl::StatusOr<Certificate> ReadLeaf(const TrialCertificateOptions& options, CallerRole role) {
  const std::string path = InDirectory(options, StrCat(CallerRoleName(role), ".pem"));
  const Bytes file(BIO_new_file(path.c_str(), "r"));
  Certificate leaf(file == nullptr ? nullptr
                                   : PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (leaf != nullptr) return leaf;
  return absl::NotFoundError(StrCat(path, " has no certificate whose names could be kept"));
}

// Returns the DNS names and IP addresses of a certificate.
std::vector<std::string> HostNames(const X509* certificate) {
  std::vector<std::string> hosts;
  auto* const names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_DNS && name->type != GEN_IPADD) continue;
    const ASN1_STRING* value = name->type == GEN_DNS ? name->d.dNSName : name->d.iPAddress;
    const unsigned char* const bytes = ASN1_STRING_get0_data(value);
    const int count = ASN1_STRING_length(value);
    std::array<char, INET6_ADDRSTRLEN> text = {};
    if (name->type == GEN_DNS) {
      hosts.emplace_back(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
    } else if (count == 4 || count == 16) {
      inet_ntop(count == 4 ? AF_INET : AF_INET6, bytes, text.data(), text.size());
      hosts.emplace_back(text.data());
    }
  }
  GENERAL_NAMES_free(names);
  return hosts;
}

// Names that the options do not give stay as they are.
absl::StatusOr<TrialCertificateOptions> WithPresentNames(TrialCertificateOptions options) {
  if (!options.router_names) {
    ASSIGN_OR_RETURN(const Certificate router, ReadLeaf(options, CallerRole::kRouter));
    options.router_names = HostNames(router.get());
  }
  if (!options.tenant) {
    ASSIGN_OR_RETURN(const Certificate client, ReadLeaf(options, CallerRole::kClient));
    options.tenant = CallerOfUris(UriNames(client.get())).tenant;
    if (!options.tenant) {
      return absl::NotFoundError(
          StrCat(InDirectory(options, "client.pem"), " names no tenant. Give one with --tenant"));
    }
  }
  return options;
}

absl::Status CheckNothingThere(const TrialCertificateOptions& options) {
  std::vector<std::string> names = {"ca.crt", "ca.key"};
  for (const CallerRole role : kRoles) names.push_back(StrCat(CallerRoleName(role), ".pem"));
  for (const std::string& name : names) {
    if (StampOf(InDirectory(options, name)).bytes < 0) continue;
    return absl::AlreadyExistsError(StrCat(InDirectory(options, name),
                                           " exists. Name another folder, or use `baton certs "
                                           "renew`"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MakeTrialCertificates(const TrialCertificateOptions& options) {
  if (mkdir(options.directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return FileFailed(options.directory);
  }
  RETURN_IF_ERROR(CheckNothingThere(options));
  ASSIGN_OR_RETURN(const Identity authority, MakeIdentity({.name = "baton trial authority",
                                                           .alt_names = "",
                                                           .is_authority = true,
                                                           .serves = false,
                                                           .days = kAuthorityDays},
                                                          nullptr));
  RETURN_IF_ERROR(MakeLeaves(options, authority));
  RETURN_IF_ERROR(WriteWhole(InDirectory(options, "ca.key"), KeyText(authority.key.get()), 0600));
  return WriteWhole(InDirectory(options, "ca.crt"), CertificateText(authority.certificate.get()),
                    0644);
}

absl::Status RenewTrialCertificates(const TrialCertificateOptions& options) {
  ASSIGN_OR_RETURN(const Identity authority, ReadAuthority(options));
  ASSIGN_OR_RETURN(const TrialCertificateOptions kept, WithPresentNames(options));
  return MakeLeaves(kept, authority);
}

}  // namespace baton
