// KV blocks lent over shared memory: the sender's account of them (LentBlocks), and its pool as a
// receiver sees it (PeerPool). One file holds the blocks of all KV groups, and one file their
// generations, each by the block's number among those of all groups (cache/kv_pool_layout.h).
//
// The receiver copies straight from the sender's pool into its own, and the sender cannot stop it:
// a transfer may be cancelled, and its blocks written anew, while a copy is under way. So every
// block has a generation, a word in memory that both see, which moves on when the block may change.
// A copy whose block has another generation afterwards than the sender's frame said is thrown away
// before anything is published; and the CRC32C of every piece, taken of the very bytes that were
// stored, must be the one that the sender took while it held the block. (The same rule as a
// sequence lock's: H.-J. Boehm, "Can Seqlocks Get Along With Programming Language Memory Models?",
// 2012.)
//
// The lending transport increments a block's generation when its last transfer ends. It does so
// before the engine learns of that end. By rule 2 of transport.h the block does not change before,
// and may change after. So the cache, which does not know the readers of its blocks, has no part in
// it.
//
// While a block of group 0 is lent, the checksums of its latest departure are kept. They serve
// every transfer that carries as many tokens of the same blocks of all groups. A departure with
// other blocks, or of a layer range, takes them anew, except those that block_checksums.h keeps.
//
// Thread safety: each belongs to one thread.
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
#include "common/strong_int.h"
#include "kvtransfer/pool/block_checksums.h"
#include "kvtransfer/protocol/fingerprint.h"
#include "kvtransfer/protocol/send_session.h"
#include "kvtransfer/protocol/transfer_frame.h"
#include "kvtransfer/transfer_pool.h"

namespace baton {

class LentBlocks {
 public:
  // InvalidArgument when the pool has no export. `pool` outlives this.
  static absl::StatusOr<LentBlocks> Create(TransferPool& pool);

  // Returns the frame that tells the receiver where the block lies and how to check it. Reads what
  // the block carries, unless its checksums are kept.
  SharedBlockFrame Lend(const BlockDispatch& dispatch, BlockChecksums& checksums);
  // The transfer has ended: to be called before its terminal event is published.
  void Return(uint64_t sender_transfer);

  int pool_fd() const { return pool_file_; }
  int generations_fd() const { return generations_.fd(); }
  // What tells a receiver how many blocks there are.
  SharedPoolFrame Describe() const;

 private:
  struct Loan {
    int32_t transfers = 0;
    // Set only for blocks of group 0: the blocks that the latest departure carried, and their
    // checksums.
    GroupBlocks blocks;
    int32_t valid_tokens = 0;
    std::vector<uint32_t> piece_crcs;  // of `valid_tokens` tokens of `blocks`
  };

  LentBlocks(TransferPool& pool, int pool_file, SharedPageBuffer generations)
      : pool_(&pool), pool_file_(pool_file), generations_(std::move(generations)) {}
  std::vector<uint32_t> Checksums(const BlockDispatch& dispatch, BlockChecksums& checksums) const;
  int64_t NumberOf(BlockId block, int32_t group) const {
    return pool_->layout().first_block(group) + block.value();
  }
  uint64_t& Generation(int64_t number);

  TransferPool* pool_;
  int pool_file_;
  SharedPageBuffer generations_;                                 // a word for each block
  absl::flat_hash_map<int64_t, Loan> loans_;                     // by number
  absl::flat_hash_map<uint64_t, std::vector<int64_t>> lent_to_;  // by sender_transfer
};

class PeerPool {
 public:
  // A pool with the blocks that `told` names, cut as `geometry` says and otherwise like `ours`.
  // Errors as KvPoolLayout::Recut and SharedPageView::Map; InvalidArgument where this host has less
  // memory, or the peer names another number of KV groups.
  static absl::StatusOr<PeerPool> Map(const KvPoolLayout& ours, const KvGeometry& geometry,
                                      const SharedPoolFrame& told, int pool_file,
                                      int generations_file);

  // Copies the block's valid tokens into `to`, and checks them: InvalidArgument for a frame that
  // does not name a block of each group that travels, OutOfRange for a block that the peer does not
  // have, FailedPrecondition when its generation is not the frame's, DataLoss naming block, layer
  // and K or V where a CRC differs. After an error the target holds garbage. REQUIRES: the receiver
  // placed the frame there, so its sizes are right.
  absl::Status Copy(const SharedBlockFrame& frame, const PieceBytes& to, CopyStores stores) const;

 private:
  // Where the block lies of each group that travels; the others are not meant.
  using Places = std::array<SharedPlace, kMaxKvGroups>;

  PeerPool(KvPoolLayout layout, SharedPageView pool, SharedPageView generations)
      : layout_(std::move(layout)), pool_(std::move(pool)), generations_(std::move(generations)) {}
  absl::StatusOr<Places> PlacesOf(const SharedBlockFrame& frame, GroupSet groups) const;
  absl::Status CheckGenerations(const SharedBlockFrame& frame, const Places& places,
                                GroupSet groups) const;
  // Copies one piece of `to`, and returns the CRC of all its valid tokens.
  uint32_t CopyPiece(const Places& places, const Piece& piece, int32_t valid_tokens,
                     const PieceBytes& to, CopyStores stores) const;

  KvPoolLayout layout_;
  SharedPageView pool_;
  SharedPageView generations_;
};

}  // namespace baton
