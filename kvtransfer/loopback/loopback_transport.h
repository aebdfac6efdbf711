// Transport within one process, for tests and single-process runs. One thread serves both ends of
// every transfer, without sockets.
//
// Thread safety: as KvTransport. Transports of several threads may share a network.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kvtransfer/transport.h"

namespace baton {

// Registry of the transports in one process; addresses are "loopback:NAME". It is an object, not a
// global.
class LoopbackNetwork;
absl::StatusOr<std::unique_ptr<KvTransport>> CreateLoopbackTransport(
    std::shared_ptr<LoopbackNetwork> network, std::string name, TransportOptions options);
std::shared_ptr<LoopbackNetwork> CreateLoopbackNetwork();

}  // namespace baton
