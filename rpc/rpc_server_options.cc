#include "rpc/rpc_server_options.h"

#include "common/status_macros.h"
#include "security/listen_policy.h"

namespace baton {

void RegisterSettings(RpcServerOptions& options, SettingList& settings) {
  settings.Add("listen", &options.listen, "HOST:PORT to serve gRPC on. Port 0 picks a free port.",
               "HOST:PORT");
  settings.Add("max-concurrent-streams", &options.max_concurrent_streams, 1, 1 << 20,
               "Largest number of open calls on one connection. Further calls wait at the client.");
  settings.Add("max-active-requests", &options.max_active_requests, 1, 1 << 20,
               "Largest number of requests that run at the same time. Further requests are refused "
               "with RESOURCE_EXHAUSTED.");
  settings.Add("rpc-memory-mib", &options.memory_mib, int64_t{64}, int64_t{1} << 20,
               "Memory that gRPC may use for its buffers, in MiB.");
  settings.Add(
      "keepalive-ms", &options.keepalive_ms, 100, 3'600'000,
      "The server pings a connection that has been without data for this long, in milliseconds.");
  settings.Add("keepalive-timeout-ms", &options.keepalive_timeout_ms, 100, 3'600'000,
               "A connection that does not answer such a ping within this time is closed, in "
               "milliseconds. Its requests are cancelled.");
  settings.Add("drain-ms", &options.drain_ms, int64_t{0}, int64_t{3'600'000},
               "How long a shutdown waits for running requests, in milliseconds.");
  settings.Add(
      "shutdown-delay-ms", &options.shutdown_delay_ms, int64_t{0}, int64_t{3'600'000},
      "How long the process still accepts requests after SIGTERM, in milliseconds. It reports at "
      "once that it is not ready. Load balancers need this time to notice. Then it drains.");
  RegisterSettings(options.tls, settings);
  settings.Add("plaintext", &options.plaintext,
               "Allow ports without encryption that other machines can reach. Only for trusted "
               "networks: everyone there can read and call these ports.");
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
