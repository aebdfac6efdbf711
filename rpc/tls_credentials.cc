#include "rpc/tls_credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <functional>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/str_cat.h"
#include "rpc/rpc_access.h"

namespace baton {
namespace {

using grpc::experimental::ExternalCertificateVerifier;
using grpc::experimental::FileWatcherCertificateProvider;

// How often gRPC looks at the files, in seconds.
constexpr unsigned kRefreshSeconds = 3;

// Accepts servers whose certificate has a role. gRPC has checked the chain before.
class RoleVerifier final : public ExternalCertificateVerifier {
 public:
  explicit RoleVerifier(CallerRole role) : role_(role) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)>, grpc::Status* result) override {
    std::vector<std::string> uris;
    for (const grpc::string_ref& uri : request->uri_names())
      uris.emplace_back(uri.data(), uri.size());
    if (!CallerOfUris(uris).roles.Has(role_)) {
      *result = grpc::Status(
          grpc::StatusCode::UNAUTHENTICATED,
          StrCat("the certificate of the server does not have the role ", CallerRoleName(role_)));
    }
    return true;
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}

 private:
  const CallerRole role_;
};

grpc::experimental::TlsChannelCredentialsOptions ChannelOptions(const TlsFiles& files) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  if (!files.certificate.empty()) {
    options.set_certificate_provider(std::make_shared<FileWatcherCertificateProvider>(
        files.key_file(), files.certificate, files.authorities, kRefreshSeconds));
    options.watch_identity_key_cert_pairs();
  } else if (!files.authorities.empty()) {
    options.set_certificate_provider(
        std::make_shared<FileWatcherCertificateProvider>(files.authorities, kRefreshSeconds));
  }
  if (!files.authorities.empty()) options.watch_root_certs();
  return options;
}

}  // namespace

std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const TlsFiles& files,
                                                             bool anonymous) {
  if (!files.any()) return grpc::InsecureServerCredentials();
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<FileWatcherCertificateProvider>(files.key_file(), files.certificate,
                                                       files.authorities, kRefreshSeconds));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(anonymous
                                    ? GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY
                                    : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  std::shared_ptr<grpc::ServerCredentials> credentials =
      grpc::experimental::TlsServerCredentials(options);
  credentials->SetAuthMetadataProcessor(std::make_shared<RpcAccessCheck>(anonymous));
  return credentials;
}

std::shared_ptr<grpc::ChannelCredentials> FleetCredentials(const TlsFiles& files, CallerRole role) {
  if (!files.any()) return grpc::InsecureChannelCredentials();
  CHECK(!files.authorities.empty());  // every authority of the system could name a role
  grpc::experimental::TlsChannelCredentialsOptions options = ChannelOptions(files);
  options.set_certificate_verifier(ExternalCertificateVerifier::Create<RoleVerifier>(role));
  options.set_check_call_host(false);  // it would compare the name again
  return grpc::experimental::TlsCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> ClientCredentials(const TlsFiles& files) {
  if (!files.any()) return grpc::InsecureChannelCredentials();
  CHECK(!files.authorities.empty());
  return VerifyingCredentials(files);
}

std::shared_ptr<grpc::ChannelCredentials> VerifyingCredentials(const TlsFiles& files) {
  grpc::experimental::TlsChannelCredentialsOptions options = ChannelOptions(files);
  options.set_certificate_verifier(
      std::make_shared<grpc::experimental::HostNameCertificateVerifier>());
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace baton
