// Sockets that listen where a HOST:PORT says.
//
// Thread safety: functions are safe from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file_descriptor.h"
#include "common/host_port.h"

namespace baton {

struct ListeningSockets {
  std::vector<FileDescriptor> sockets;  // non-blocking; at least one
  int32_t port = 0;                     // of all of them
};

// One socket for every address of the host, all with the same port; 0 picks one. 0.0.0.0 and ::
// mean any address of either family. May block on a name service. InvalidArgument where the host is
// not known, Unavailable where none of its addresses can be bound.
absl::StatusOr<ListeningSockets> ListenAt(const HostPort& where);

}  // namespace baton
