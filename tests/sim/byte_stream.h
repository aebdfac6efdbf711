// The bytes between two workers as a connection sees them: ordered, non-blocking, and broken at
// some point. A socket in production, simulated in tests.
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
  virtual ~ByteStream() = default;  // closes it

  // What connecting came to, once the stream turned writable for the first time.
  virtual absl::Status ConnectResult() = 0;
  // Bytes moved; 0: none now. Unavailable: broken, or (Read) closed by the peer.
  virtual absl::StatusOr<int64_t> Read(std::span<const iovec> buffers) = 0;
  virtual absl::StatusOr<int64_t> Write(std::span<const iovec> buffers) = 0;
};

}  // namespace baton
