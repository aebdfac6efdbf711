#include "tracing/otlp/otlp_collector.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
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

// Schemes have no case.
Endpoint EndpointOf(absl::string_view text) {
  constexpr absl::string_view kTls = "https://", kPlain = "http://";
  if (absl::StartsWithIgnoreCase(text, kTls)) {
    return {.address = std::string(text.substr(kTls.size())), .tls = true};
  }
  if (absl::StartsWithIgnoreCase(text, kPlain)) text.remove_prefix(kPlain.size());
  return {.address = std::string(text), .tls = false};
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
  if (absl::StrContains(endpoint.address, '/')) {
    return absl::InvalidArgumentError(
        absl::StrCat("--otlp-endpoint: \"", options.otlp_endpoint,
                     "\" must be HOST:PORT, http://HOST:PORT or https://HOST:PORT"));
  }
  if (const absl::Status status = CheckHostPort(endpoint.address); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--otlp-endpoint: ", std::string(status.message())));
  }
  if (files.certificate.empty() && !files.key.empty()) {
    return absl::InvalidArgumentError("--otlp-key needs --otlp-cert");
  }
  if (!endpoint.tls) return absl::OkStatus();
  absl::Status loaded =
      TlsContext::Load(files, {.side = TlsSide::kClient, .verify_peer = true}).status();
  if (loaded.ok()) return loaded;
  return absl::Status(loaded.code(), absl::StrCat("--otlp-ca, --otlp-cert or --otlp-key: ",
                                                  std::string(loaded.message())));
}

std::shared_ptr<grpc::Channel> CollectorChannel(const TracingOptions& options) {
  const Endpoint endpoint = EndpointOf(options.otlp_endpoint);
  return MakeChannel(endpoint.address,
                     endpoint.tls ? VerifyingCredentials(FilesOf(options)) : nullptr,
                     LostCalls::kSentAgain, Pings::kNone);
}

}  // namespace baton
