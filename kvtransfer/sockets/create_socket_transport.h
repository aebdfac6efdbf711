// Makes the transports over sockets: TCP, shared memory on one host, both behind one address, and
// NCCL beside TCP.
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

namespace baton {

// TCP. Listens on `listen_address` ("HOST:PORT", port 0 picks one) and advertises `advertise_host`
// (empty: the listen host, which then must not be a wildcard). Names are looked up here, once; the
// advertised address is numeric.
absl::StatusOr<std::unique_ptr<KvTransport>> CreateTcpTransport(const std::string& listen_address,
                                                                const std::string& advertise_host,
                                                                TransportOptions options,
                                                                TcpOptions tcp = {});

// Shared memory on one host, TCP, or both behind one address.
struct SocketEndpoints {
  std::string tcp_listen;  // as CreateTcpTransport's; empty: no TCP
  std::string tcp_advertise_host;
  // Where this process is met on its host: 1 to 64 letters, digits, '-', '_' or '.', unique within
  // the network namespace. Needs a pool that has an export. Empty: no shared memory.
  std::string shm_name;
  // Payload over NCCL where the peer of a TCP connection has it too; unset: never. With no usable
  // library or device here the transport is made all the same, and says so by `on_fallback`.
  std::optional<NcclOptions> nccl = std::nullopt;
};
// AlreadyExists when the name is taken.
absl::StatusOr<std::unique_ptr<KvTransport>> CreateSocketTransport(const SocketEndpoints& endpoints,
                                                                   TransportOptions options,
                                                                   TcpOptions tcp = {});

}  // namespace baton
