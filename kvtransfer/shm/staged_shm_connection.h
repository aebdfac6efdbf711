// Shared-memory connection of a worker whose pool other processes cannot map, because it is on a
// GPU. It lends slots: the pool's read buffers, which lie in a file.
//
//   block ─copy of the device─▶ slot ─SharedBlock─▶ the receiver copies ─SharedTaken─▶ the slot is
//   free
//
// A SharedBlock is sent when the copy to its slot has ended and its checksums are known. The next
// blocks are copied meanwhile. The slot stays lent until the receiver has taken it, or until its
// transfer or the connection ends.
//
// One connection uses at most half of the slots. So a receiver that takes nothing delays its own
// transfers, until they time out, and leaves slots to the others.
//
// Thread safety: belongs to the I/O thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "kvtransfer/shm/lent_slot.h"
#include "kvtransfer/shm/shm_connection.h"

namespace baton {

class StagedShmConnection final : public ShmConnection {
 public:
  // `slots` is the export of the node's pool, belongs to the transport and outlives this.
  StagedShmConnection(ConnectionParts parts, LentFile& slots);

  void ReleaseEndedTransfers() override;
  PoolWait waits_for_pool() const override;

 protected:
  Frame Describe() const override;
  absl::Status OnPayloadAnswer(Frame frame, int64_t now_us) override;
  absl::Status QueueBlocks(int64_t now_us) override;
  bool HasBlocksToQueue() const override {
    return copying_.empty() && HasRoom() && ShmConnection::HasBlocksToQueue();
  }

 private:
  struct Copying {
    BlockDispatch dispatch;
    LeaseRequest lease;
  };
  struct Lent {
    BlockDispatch dispatch;
    std::optional<LentSlot> slot;  // unset: the transfer has ended
  };

  bool HasRoom() const { return copying_.size() + lent_.size() < most_; }
  // Begins to copy the next blocks, as long as there are slots.
  void BeginCopies();
  absl::Status Lend(Copying copied, int64_t now_us);

  LentFile& slots_;
  const size_t most_;            // blocks in copying_ and lent_
  std::deque<Copying> copying_;  // in the order in which they are sent
  std::deque<Lent> lent_;        // not taken yet, in the order in which they were sent
  uint64_t taken_ = 0;
};

}  // namespace baton
