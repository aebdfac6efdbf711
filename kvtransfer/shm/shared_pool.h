// KV blocks lent over shared memory: LentBlocks tracks the sender's loans, and PeerPool is the
// receiver's view of the sender's pool. One file holds the blocks of all KV groups, and one file
// their generations. Both are indexed by the block's number among the blocks of all groups
// (cache/kv_pool_layout.h). A pool on a GPU cannot be mapped. Its sender copies each block to a
// slot, and lends the slot (lent_slot.h); a PeerPool then is the view of the slots.
//
// The receiver copies directly from the sender's pool into its own, and the sender cannot stop it.
// A transfer may be cancelled, and its blocks rewritten, during a copy. So every block has a
// generation: a counter in memory that both see, which is incremented when the block may change.
// Two checks protect the receiver:
//  - After the copy, the block's generation must still be the one in the sender's frame. Otherwise
//    the copy is discarded before anything is published.
//  - The CRC32C of every piece, computed from the very bytes that were stored, must equal the one
//    that the sender computed while it held the block.
//
// Sequence locks follow the same rule: H.-J. Boehm, "Can Seqlocks Get Along With Programming
// Language Memory Models?", 2012.
//
// The lending transport increments a block's generation when its last transfer ends, before the
// engine learns of that end. By rule 2 of transport.h, the block does not change before that event
// and may change after it. So the cache, which does not know the readers of its blocks, is not
// involved.
//
// While a block of group 0 is lent, the checksums of its latest departure are kept. They serve
// every transfer that carries as many tokens of the same blocks of all groups. A departure with
// other blocks, or of a layer range, computes them again, except those that block_checksums.h
// keeps.
//
// Thread safety: each object belongs to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/crc32c_copy.h"
#include "common/shared_page_buffer.h"
#include "kvtransfer/pool/block_checksums.h"
#include "kvtransfer/protocol/fingerprint.h"
#include "kvtransfer/protocol/send_session.h"
#include "kvtransfer/protocol/transfer_frame.h"
#include "kvtransfer/shm/lent_file.h"
#include "kvtransfer/transfer_pool.h"

namespace baton {

class LentBlocks {
 public:
  // InvalidArgument if the pool has no export. `pool` outlives this.
  static absl::StatusOr<LentBlocks> Create(TransferPool& pool);

  // Returns the frame that tells the receiver where the block is and how to check it. Reads the
  // block's bytes unless its checksums are kept.
  SharedBlockFrame Lend(const BlockDispatch& dispatch, BlockChecksums& checksums);
  // Ends the loans of a transfer. REQUIRES: called before the transfer's terminal event is
  // published.
  void Return(uint64_t sender_transfer);

  const LentFile& file() const { return file_; }
  // Returns the frame that tells a receiver the pool's number of blocks.
  SharedPoolFrame Describe() const;

 private:
  struct Loan {
    int32_t transfers = 0;
    // Set only for blocks of group 0: the blocks of the latest departure, and their checksums.
    GroupBlocks blocks;
    int32_t valid_tokens = 0;
    std::vector<uint32_t> piece_crcs;  // for `valid_tokens` tokens of `blocks`
  };

  LentBlocks(TransferPool& pool, LentFile file) : pool_(&pool), file_(std::move(file)) {}
  std::vector<uint32_t> Checksums(const BlockDispatch& dispatch, BlockChecksums& checksums) const;

  TransferPool* pool_;
  LentFile file_;
  absl::flat_hash_map<int64_t, Loan> loans_;                     // by block number
  absl::flat_hash_map<uint64_t, std::vector<int64_t>> lent_to_;  // by sender_transfer
};

class PeerPool {
 public:
  // Maps a pool with the blocks that `told` names and with the layout of `geometry`, otherwise like
  // `ours`. Errors as KvPoolLayout::Recut and SharedPageView::Map. InvalidArgument if the pool is
  // larger than this host's memory, or the number of KV groups differs.
  static absl::StatusOr<PeerPool> Map(const KvPoolLayout& ours, const KvGeometry& geometry,
                                      const SharedPoolFrame& told, int pool_file,
                                      int generations_file);
  // Same for slots, whose layout is block-major.
  static absl::StatusOr<PeerPool> Map(const KvPoolLayout& ours, const KvGeometry& geometry,
                                      const SharedSlotsFrame& told, int slots_file,
                                      int generations_file);
  // True if the sender waits for SharedTaken before it uses a block's place again.
  bool slots() const { return slots_; }

  // Copies the block's valid tokens into `to` and checks them. After an error, the target holds
  // garbage. REQUIRES: the receiver placed the frame there, so its sizes are right. Errors:
  //  - InvalidArgument: the frame does not name a block of each group that travels.
  //  - OutOfRange: the peer does not have the block.
  //  - FailedPrecondition: the block's generation differs from the frame's.
  //  - DataLoss: a CRC differs. Names transfer, block, layer and K or V.
  absl::Status Copy(const SharedBlockFrame& frame, const PieceBytes& to, CopyStores stores) const;

 private:
  // Place of the block in each group that travels; other entries are unused.
  using Places = std::array<SharedPlace, kMaxKvGroups>;

  PeerPool(KvPoolLayout layout, SharedPageView pool, SharedPageView generations)
      : layout_(std::move(layout)), pool_(std::move(pool)), generations_(std::move(generations)) {}
  static absl::StatusOr<PeerPool> MapFile(const KvPoolLayout& ours, const KvGeometry& geometry,
                                          const std::vector<int64_t>& num_blocks, int pool_file,
                                          int generations_file);
  absl::StatusOr<Places> PlacesOf(const SharedBlockFrame& frame, GroupSet groups) const;
  absl::Status CheckGenerations(const SharedBlockFrame& frame, const Places& places,
                                GroupSet groups) const;
  // Copies one piece of `to`. Returns the CRC of all its valid tokens.
  uint32_t CopyPiece(const Places& places, const Piece& piece, int32_t valid_tokens,
                     const PieceBytes& to, CopyStores stores) const;

  KvPoolLayout layout_;
  SharedPageView pool_;
  SharedPageView generations_;
  bool slots_ = false;
};

}  // namespace baton
