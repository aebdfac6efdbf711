// Ordered, non-blocking byte stream between two workers, as a connection uses it. It can break at
// any point. Production uses a socket; the simulation uses SimSocket.
//
// Thread safety: belongs to one thread.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton {

class ByteStream {
 public:
  virtual ~ByteStream() = default;  // closes the stream

  // Returns the result of connecting. Valid once the stream has become writable for the first time.
  virtual absl::Status ConnectResult() = 0;
  // Return the number of bytes moved; 0 if the call would block. Unavailable: the stream is broken,
  // or (Read) the peer closed it.
  virtual absl::StatusOr<int64_t> Read(std::span<const iovec> buffers) = 0;
  virtual absl::StatusOr<int64_t> Write(std::span<const iovec> buffers) = 0;
};

}  // namespace baton
