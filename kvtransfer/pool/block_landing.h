// Moves one block's payload into the pool (BlockLanding) or out of it (BlockDeparture) through a
// lease of the pool's bytes. A connection drives it and does the I/O.
//
// The payload is a whole block or a layer range of it (BlockFrame::layers). A landing scatters the
// sender's block over several receiver blocks if the block sizes differ.
//
// A transfer can end in the middle of a block, but the byte stream must go on. So both classes can
// release the lease early:
//  - Divert() sends the rest of a landing to scrap memory.
//  - Detach() copies the rest of a departure out of the lease.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtransfer/pool/piece_bytes.h"
#include "kvtransfer/protocol/send_session.h"
#include "kvtransfer/protocol/transfer_frame.h"
#include "kvtransfer/protocol/transfer_receiver.h"
#include "kvtransfer/transfer_pool.h"

namespace baton {

inline constexpr int kMaxIovecs = 64;

class BlockLanding {
 public:
  // Lands in `lease`. REQUIRES: the receiver placed this frame, and `lease` is a ready kLand lease
  // of the placement's parts and the frame's layers.
  BlockLanding(PoolLease lease, BlockPlacement placement, BlockFrame frame);
  // Discards a payload that no transfer wants.
  explicit BlockLanding(int64_t payload_bytes) : remaining_(payload_bytes) {}

  // Describes where the next bytes go. Fills at most kMaxIovecs and out.size() entries, and at
  // least one while remaining() > 0.
  int Fill(std::span<iovec> out);
  // `bytes` arrived there. Verifies the pieces that became whole, while they are in the CPU's
  // cache.
  void Advance(int64_t bytes);
  void Divert();
  // Starts to write the verified bytes into the pool. REQUIRES: placement(), remaining() is 0,
  // verified() is OK.
  void Store() { lease_.Store(); }
  // After Store: returns true when the pool has the bytes. An error means that the copy failed.
  absl::StatusOr<bool> Stored() { return lease_.Ready(); }

  int64_t remaining() const { return remaining_; }
  // Set while this lands in the pool.
  const std::optional<BlockPlacement>& placement() const { return placement_; }
  int64_t payload_bytes() const { return frame_.payload_bytes; }
  // DataLoss if a CRC differs; names transfer, block, layer and K or V of the first such piece.
  // Complete once remaining() is 0.
  const absl::Status& verified() const { return verified_; }

 private:
  void VerifyPieces();
  void VerifyPiece(const Piece& piece);

  PoolLease lease_;
  std::optional<BlockPlacement> placement_;
  BlockFrame frame_;
  // Tokens that no part holds, [piece][bytes]. They are needed for the checksum only.
  std::vector<std::byte> dropped_;
  std::optional<BlockCursor> cursor_;
  int64_t remaining_ = 0;
  // Progress of the verification.
  size_t verified_pieces_ = 0;
  Pieces::Iterator next_piece_;
  int64_t verified_bytes_ = 0;   // of the payload
  size_t verified_dropped_ = 0;  // of dropped_
  absl::Status verified_;
  std::unique_ptr<std::byte[]> scrap_;
};

class BlockDeparture {
 public:
  // `piece_crcs` are the block's checksums. REQUIRES: the sender dispatched this block, and `lease`
  // is a ready kRead lease of its valid tokens and layers.
  BlockDeparture(PoolLease lease, BlockDispatch dispatch, std::vector<uint32_t> piece_crcs);

  // Describes the next bytes to send. Fills at most out.size() entries.
  int Fill(std::span<iovec> out);
  void Advance(int64_t bytes);
  void Detach();

  int64_t remaining() const { return remaining_; }
  const BlockDispatch& dispatch() const { return dispatch_; }  // its frame includes the CRCs
  bool detached() const { return detached_; }

 private:
  PoolLease lease_;
  BlockDispatch dispatch_;
  BlockCursor cursor_;
  int64_t remaining_;
  bool detached_ = false;
  std::vector<std::byte> copy_;
};

}  // namespace baton
