// The transport within one process: both ends of every transfer on one thread, without a wire.
//
// Thread safety: as KvTransport; a network may be shared by the transports of any threads.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kvtransfer/transport.h"

namespace baton {

// Both ends in one process (the address is "loopback:NAME"); the registry is an object, not a
// global.
class LoopbackNetwork;
absl::StatusOr<std::unique_ptr<KvTransport>> CreateLoopbackTransport(
    std::shared_ptr<LoopbackNetwork> network, std::string name, TransportOptions options);
std::shared_ptr<LoopbackNetwork> CreateLoopbackNetwork();

}  // namespace baton
