#include "rpc/rpc_server_options.h"

#include "common/status_macros.h"
#include "security/listen_policy.h"

namespace baton {

void RegisterSettings(RpcServerOptions& options, SettingList& settings) {
  settings.Add("listen", &options.listen, "HOST:PORT to serve gRPC on; port 0 picks a free one.");
  settings.Add("max-concurrent-streams", &options.max_concurrent_streams, 1, 1 << 20,
               "Calls that one connection may have open; more wait at the client.");
  settings.Add("max-active-requests", &options.max_active_requests, 1, 1 << 20,
               "Requests that run at once; more are refused with RESOURCE_EXHAUSTED.");
  settings.Add("rpc-memory-mib", &options.memory_mib, int64_t{64}, int64_t{1} << 20,
               "Memory that gRPC may use for its buffers, in MiB.");
  settings.Add("keepalive-ms", &options.keepalive_ms, 100, 3'600'000,
               "A connection without data for this long is pinged, in milliseconds.");
  settings.Add("keepalive-timeout-ms", &options.keepalive_timeout_ms, 100, 3'600'000,
               "A connection that does not answer such a ping for this long is closed and its "
               "requests are cancelled, in milliseconds.");
  settings.Add("drain-ms", &options.drain_ms, int64_t{0}, int64_t{3'600'000},
               "How long a shutdown waits for running requests, in milliseconds.");
  settings.Add("shutdown-delay-ms", &options.shutdown_delay_ms, int64_t{0}, int64_t{3'600'000},
               "How long a process that ends still accepts requests after it has reported that it "
               "is not ready, in milliseconds. Load balancers need this time to notice. The "
               "draining follows.");
  RegisterSettings(options.tls, settings);
  settings.Add("plaintext", &options.plaintext,
               "Allows ports that other machines reach without encryption. Only for networks where "
               "everyone may read and call them.");
}

absl::Status CheckServerSecurity(const RpcServerOptions& options) {
  RETURN_IF_ERROR(CheckFleetTls(options.tls));
  if (options.grpc_public && !options.tls.any()) {
    return absl::InvalidArgumentError("--grpc-public needs --tls-cert and --tls-ca");
  }
  if (options.tls.any() || options.plaintext) return absl::OkStatus();
  return CheckPlaintextListen("--listen", options.listen, "--tls-cert and --tls-ca");
}

}  // namespace baton
