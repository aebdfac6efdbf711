// KV blocks lent over shared memory: the sender's account of them (LentBlocks), and its pool as a
// receiver sees it (PeerPool).
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
// Who moves a generation on: the transport that lent the block, when the last transfer that has it
// ends, before the engine can hear of that end. By rule 2 of transport.h the block does not change
// before, and may after; so the words need no help from the cache, which knows nothing of who reads
// its blocks. While a block is lent its checksums are taken once, however many transfers carry it;
// beyond that, block_checksums.h keeps them.
//
// Thread safety: each belongs to one thread.
#pragma once

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

  // What tells the receiver where the block lies and how to check it. Reads the whole block, unless
  // it is lent already or its checksums are kept.
  SharedBlockFrame Lend(const BlockDispatch& dispatch, BlockChecksums& checksums);
  // The transfer has ended: to be called before its terminal event is published.
  void Return(uint64_t sender_transfer);

  int pool_fd() const { return pool_file_; }
  int generations_fd() const { return generations_.fd(); }
  int64_t num_blocks() const { return pool_->layout().num_blocks(); }

 private:
  struct Loan {
    int32_t transfers = 0;
    int32_t valid_tokens = 0;
    std::vector<uint32_t> piece_crcs;  // of so many tokens
  };

  LentBlocks(TransferPool& pool, int pool_file, SharedPageBuffer generations)
      : pool_(&pool), pool_file_(pool_file), generations_(std::move(generations)) {}
  std::vector<uint32_t> Checksums(const BlockDispatch& dispatch, BlockChecksums& checksums) const;
  uint64_t& Generation(BlockId block);

  TransferPool* pool_;
  int pool_file_;
  SharedPageBuffer generations_;  // a word for each block
  absl::flat_hash_map<BlockId, Loan> loans_;
  absl::flat_hash_map<uint64_t, std::vector<BlockId>> lent_to_;  // by sender_transfer
};

class PeerPool {
 public:
  // A pool of `num_blocks` blocks, cut as `geometry` says and otherwise like `ours`. Errors as
  // KvLayout::Create and SharedPageView::Map; InvalidArgument where this host has less memory.
  static absl::StatusOr<PeerPool> Map(const KvLayout& ours, const KvGeometry& geometry,
                                      int64_t num_blocks, int pool_file, int generations_file);

  // Copies the block's valid tokens into `to`, and checks them: OutOfRange for a block
  // that the peer does not have, FailedPrecondition when its generation is not the frame's,
  // DataLoss naming block, layer and K or V where a CRC differs. After an error the target holds
  // garbage. REQUIRES: the receiver placed the frame there, so its sizes are right.
  absl::Status Copy(const SharedBlockFrame& frame, const PieceBytes& to, CopyStores stores) const;

 private:
  PeerPool(const KvLayout& layout, SharedPageView pool, SharedPageView generations)
      : layout_(layout), pool_(std::move(pool)), generations_(std::move(generations)) {}
  absl::Status CheckGeneration(const SharedBlockFrame& frame) const;
  // Copies one piece of `to`, and returns the CRC of all its `bytes`.
  uint32_t CopyPiece(const SharedBlockFrame& frame, int32_t piece, size_t bytes,
                     const PieceBytes& to, CopyStores stores) const;

  KvLayout layout_;
  SharedPageView pool_;
  SharedPageView generations_;
};

}  // namespace baton
