// Factory functions of the socket transports: TCP, shared memory on one host, both behind one
// address, and NCCL beside TCP.
//
// Thread safety: free functions.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "kvtransfer/nccl/nccl_options.h"
#include "kvtransfer/sockets/tcp_options.h"
#include "kvtransfer/transport.h"
#include "security/tls_files.h"

namespace baton {

// Creates a TCP transport. It listens on `listen_address` ("HOST:PORT"; port 0 picks one) and
// advertises `advertise_host`. An empty `advertise_host` means the listen host, which then must not
// be a wildcard. Names are resolved here, once. The advertised address is numeric.
absl::StatusOr<std::unique_ptr<KvTransport>> CreateTcpTransport(const std::string& listen_address,
                                                                const std::string& advertise_host,
                                                                TransportOptions options,
                                                                TcpOptions tcp = {});

// Configures shared memory on one host, TCP, or both behind one address.
struct SocketEndpoints {
  std::string tcp_listen;  // as in CreateTcpTransport; empty: no TCP
  std::string tcp_advertise_host;
  // Name of this process for peers on its host: 1 to 64 letters, digits, '-', '_' or '.', unique
  // within the network namespace. Needs a pool with an export. Empty: no shared memory.
  std::string shm_name;
  // Sends payload over NCCL if the peer of a TCP connection has it too; unset: never. Without a
  // usable library or device, the transport is created anyway and reports that by `on_fallback`.
  std::optional<NcclOptions> nccl = std::nullopt;
  // Encrypts TCP. No file: off. Payload over NCCL is never encrypted.
  TlsFiles tls = {};
};
// AlreadyExists if the shared-memory name is in use.
absl::StatusOr<std::unique_ptr<KvTransport>> CreateSocketTransport(const SocketEndpoints& endpoints,
                                                                   TransportOptions options,
                                                                   TcpOptions tcp = {});

}  // namespace baton
