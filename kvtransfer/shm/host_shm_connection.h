// Shared-memory connection of a worker whose pool other processes can map. It lends the pool's own
// blocks. A waiting SharedBlock only costs the sender a few bytes in its socket's buffer.
//
// Thread safety: belongs to the I/O thread.
#pragma once

#include <utility>

#include "kvtransfer/shm/shm_connection.h"

namespace baton {

class HostShmConnection final : public ShmConnection {
 public:
  // `lent` belongs to the transport, which also ends the loans, and outlives this.
  HostShmConnection(ConnectionParts parts, LentBlocks& lent)
      : ShmConnection(std::move(parts), lent.file()), lent_(lent) {}

 protected:
  Frame Describe() const override { return lent_.Describe(); }
  absl::Status QueueBlocks(int64_t now_us) override;

 private:
  LentBlocks& lent_;
};

}  // namespace baton
