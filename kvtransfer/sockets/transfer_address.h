// The addresses in a ticket: ways to a receiver over sockets, the best first, separated by commas
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
inline constexpr size_t kMaxAddressBytes = 512;  // of all of them; what a Hello's `node` may have

bool IsShmAddress(const std::string& address);

// Those that a transport of these media can try, in the receiver's order. InvalidArgument when they
// are too many or too long, one is malformed, or none is of use.
absl::StatusOr<std::vector<std::string>> UsableAddresses(const std::string& addresses, bool tcp,
                                                         bool shm);

// Begins to connect to one of them. Errors of StartConnectTcp, ConnectUnix and CheckSameUser.
absl::StatusOr<FileDescriptor> StartConnect(const std::string& address);

// The address at which others reach the listener: `advertised` is "HOST:PORT", or a host beside the
// listener's port, or empty: the listener's own. May block on a name service.
absl::StatusOr<SocketAddress> AdvertisedAddress(const FileDescriptor& listener,
                                                const std::string& advertised);

}  // namespace baton
