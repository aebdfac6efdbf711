// A slot lent to a receiver: a read lease of a pool that exports its read buffers. The receiver may
// read the slot until this object is destroyed. Later reads fail, because the slot's generation has
// changed by then (shared_pool.h).
//
// Thread safety: belongs to the pool's I/O thread.
#pragma once

#include <utility>

#include "kvtransfer/shm/lent_file.h"
#include "kvtransfer/transfer_pool.h"

namespace baton {

class LentSlot {
 public:
  // `file` is the pool's export and outlives this. REQUIRES: `lease` is a ready kRead lease.
  LentSlot(LentFile& file, PoolLease lease) : file_(&file), lease_(std::move(lease)) {}
  LentSlot(LentSlot&& other) noexcept
      : file_(std::exchange(other.file_, nullptr)), lease_(std::move(other.lease_)) {}
  LentSlot& operator=(LentSlot&&) = delete;
  ~LentSlot() {
    if (file_ == nullptr) return;
    const GroupBlocks& slot = blocks();
    for (int32_t group = 0; group < file_->layout().groups(); ++group) {
      if (slot[group] != kNoBlock) file_->EndLoan(file_->NumberOf(slot[group], group));
    }
  }

  const PieceBytes& bytes() const { return lease_.bytes(); }
  // The slot as the file's blocks: one for each KV group that travels.
  const GroupBlocks& blocks() const { return bytes().parts().front().blocks; }

 private:
  LentFile* file_;  // null: moved from
  PoolLease lease_;
};

}  // namespace baton
