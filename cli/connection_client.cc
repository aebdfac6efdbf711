#include "cli/connection_client.h"

#include "common/status_macros.h"
#include "common/str_cat.h"
#include "rpc/status_conversion.h"
#include "rpc/tls_credentials.h"

namespace baton {

absl::StatusOr<ClientConnection> OpenConnection(const ConnectionFlags& flags) {
  RETURN_IF_ERROR(CheckConnectionFlags(flags));
  ClientConnection out;
  ASSIGN_OR_RETURN(out.api_key, ReadApiKey(flags));
  if (!flags.tls.any()) {
    if (out.api_key.empty()) return out;
    return absl::InvalidArgumentError(
        "--api-key-file needs --tls-ca: a key must not travel without encryption");
  }
  out.to_routers = ClientCredentials(flags.tls);
  out.to_workers = FleetCredentials(flags.tls, CallerRole::kWorker);
  return out;
}

absl::Status ExplainFailure(const CalledProcess& process, const std::string& address,
                            grpc::Channel& channel, absl::Status failure) {
  const std::string message(failure.message());
  const auto says = [&message](const char* text) {
    return message.find(text) != std::string::npos;
  };
  if (absl::IsUnimplemented(failure) && message == kUnknownCallMessage) {
    return absl::UnimplementedError(
        StrCat(address, " is not a ", process.kind, ", or it is older: ", process.address_advice));
  }
  if (!absl::IsUnavailable(failure)) return failure;
  if (channel.GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_TRANSIENT_FAILURE) {
    const bool lost = says("Socket closed") || says("Connection reset");
    if (!lost) return failure;
    return absl::UnavailableError(StrCat("the ", process.kind, " at ", address, " was lost"));
  }
  if (says("http1.x server")) {
    return absl::UnavailableError(StrCat(address, " is a port for HTTP: ", process.option,
                                         " needs the ", process.kind, "'s port for gRPC"));
  }
  if (says("C-ares")) {
    return absl::UnavailableError(
        StrCat("the host of ", address, " is not known: ", process.address_advice));
  }
  if (says("certificate verify failed")) {
    return absl::UnavailableError(
        StrCat("the certificate of the process at ", address,
               " is not valid: it is from an authority that is not in --tls-ca, has expired, or is "
               "not for servers (",
               message, ")"));
  }
  if (says("Hostname Verification Check failed")) {
    return absl::UnavailableError(StrCat("the certificate of the process at ", address,
                                         " does not name this host, or is not for a ", process.kind,
                                         " (", message, ")"));
  }
  if (says("Socket closed")) {
    return absl::UnavailableError(
        StrCat("the process at ", address,
               " closed the connection: if it uses TLS, give --tls-ca, and --tls-cert if it asks "
               "for a certificate"));
  }
  return absl::UnavailableError(StrCat("no ", process.kind, " answers at ", address, ": ",
                                       process.missing_advice, " (", message, ")"));
}

}  // namespace baton
