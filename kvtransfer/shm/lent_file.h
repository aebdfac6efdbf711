// A file that receivers on this host map, seen from its owner: the blocks in it, and a generation
// for each of them (shared_pool.h). The file is a worker's pool, or slots to which the blocks of a
// pool are copied.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "common/shared_page_buffer.h"
#include "common/strong_int.h"
#include "kvtransfer/pool/pieces.h"
#include "kvtransfer/protocol/transfer_frame.h"
#include "kvtransfer/transfer_pool.h"

namespace baton {

class LentFile {
 public:
  // InvalidArgument if the pool has no export. `pool` outlives this.
  static absl::StatusOr<LentFile> Create(const TransferPool& pool);

  int fd() const { return export_.file; }
  int generations_fd() const { return generations_.fd(); }
  const KvPoolLayout& layout() const { return *export_.layout; }
  // Returns the block's number among the blocks of all groups.
  int64_t NumberOf(BlockId block, int32_t group) const {
    return layout().first_block(group) + block.value();
  }
  // Writes into the frame where these blocks are.
  void SetPlaces(const GroupBlocks& blocks, SharedBlockFrame& frame) const;
  // From now on, a receiver that reads this block fails. Call it before the block may change.
  void EndLoan(int64_t number);

 private:
  LentFile(const PoolExport& exported, SharedPageBuffer generations)
      : export_(exported), generations_(std::move(generations)) {}

  PoolExport export_;
  SharedPageBuffer generations_;  // one counter for each block
};

}  // namespace baton
