// Addresses in a ticket: the ways to a receiver over sockets, best first, separated by commas
// ("shm:NAME,tcp:HOST:PORT").
//
// Thread safety: functions are safe from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file_descriptor.h"
#include "kvtransfer/sockets/tcp_socket.h"

namespace baton {

inline constexpr size_t kMaxAddresses = 8;
// Limit of all ways together, and of a Hello's `node`.
inline constexpr size_t kMaxAddressBytes = 512;

bool IsShmAddress(const std::string& address);

// Returns the addresses that a transport with these media can use, in the receiver's order.
// InvalidArgument if they are too many or too long, one is malformed, or none is usable.
absl::StatusOr<std::vector<std::string>> UsableAddresses(const std::string& addresses, bool tcp,
                                                         bool shm);

// Begins to connect to one of them. Errors as StartConnectTcp, ConnectUnix and CheckSameUser.
absl::StatusOr<FileDescriptor> StartConnect(const std::string& address);

// Returns the address at which peers reach the listener. `advertised` is "HOST:PORT", or a host
// (with the listener's port), or empty (the listener's own address). May block on a name service.
absl::StatusOr<SocketAddress> AdvertisedAddress(const FileDescriptor& listener,
                                                const std::string& advertised);

}  // namespace baton
