#include "tracing/otlp/otlp_collector.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/host_port.h"
#include "rpc/channel.h"
#include "rpc/tls_credentials.h"
#include "security/tls_context.h"
#include "security/tls_files.h"

namespace baton {
namespace {

struct Endpoint {
  std::string address;  // HOST:PORT
  bool tls = false;
};

Endpoint EndpointOf(const std::string& text) {
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "https://")) return {.address = std::string(rest), .tls = true};
  absl::ConsumePrefix(&rest, "http://");
  return {.address = std::string(rest), .tls = false};
}

TlsFiles FilesOf(const TracingOptions& options) {
  return {.certificate = options.otlp_certificate,
          .key = options.otlp_key,
          .authorities = options.otlp_authorities};
}

}  // namespace

absl::Status CheckCollector(const TracingOptions& options) {
  const Endpoint endpoint = EndpointOf(options.otlp_endpoint);
  const TlsFiles files = FilesOf(options);
  if (files.any() && !endpoint.tls) {
    return absl::InvalidArgumentError(
        absl::StrCat("--otlp-ca, --otlp-cert and --otlp-key need an --otlp-endpoint that begins "
                     "with https://; it is \"",
                     options.otlp_endpoint, "\""));
  }
  if (options.otlp_endpoint.empty()) return absl::OkStatus();
  if (const absl::Status status = ParseHostPort(endpoint.address).status(); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--otlp-endpoint: ", std::string(status.message())));
  }
  if (files.certificate.empty() && !files.key.empty()) {
    return absl::InvalidArgumentError("--otlp-key needs --otlp-cert");
  }
  if (!endpoint.tls) return absl::OkStatus();
  const absl::Status loaded =
      TlsContext::Load(files, {.side = TlsSide::kClient, .verify_peer = true}).status();
  if (loaded.ok()) return loaded;
  return absl::Status(loaded.code(),
                      absl::StrCat("--otlp-endpoint: ", std::string(loaded.message())));
}

std::shared_ptr<grpc::Channel> CollectorChannel(const TracingOptions& options) {
  const Endpoint endpoint = EndpointOf(options.otlp_endpoint);
  return MakeChannel(endpoint.address,
                     endpoint.tls ? VerifyingCredentials(FilesOf(options)) : nullptr);
}

}  // namespace baton
