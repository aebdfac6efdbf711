// Opens the sockets that listen at a HOST:PORT.
//
// Thread safety: functions may be called from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file_descriptor.h"
#include "common/host_port.h"

namespace baton {

struct ListeningSockets {
  std::vector<FileDescriptor> sockets;  // non-blocking; at least one
  int32_t port = 0;                     // the same for all sockets
};

// Opens one socket for every address of the host, all with the same port. Port 0 picks a free one.
// 0.0.0.0 and :: mean all addresses of both families. May block on name resolution.
// InvalidArgument: unknown host. Unavailable: none of its addresses can be bound.
absl::StatusOr<ListeningSockets> ListenAt(const HostPort& where);

}  // namespace baton
