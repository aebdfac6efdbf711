// A block's payload on its way into the pool (BlockLanding) or out of it (BlockDeparture), through
// a lease of the pool's bytes. The connection that moves the bytes drives it.
//
// What moves is a whole block or a layer range of it (BlockFrame::layers). A landing scatters the
// sender's block over blocks of the receiver where their sizes differ.
//
// Both can be cut loose from the pool in the middle of a block, because a byte stream has to be
// continued: Divert sends the rest of a landing to scrap memory, Detach copies the rest of a
// departure out of the lease. After either the lease is gone.
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
  // Into `lease`. REQUIRES: the receiver placed this frame, and the lease is a kLand one of the
  // placement's parts and the frame's layers, ready.
  BlockLanding(PoolLease lease, BlockPlacement placement, BlockFrame frame);
  // A payload that nobody wants: to scrap.
  explicit BlockLanding(int64_t payload_bytes) : remaining_(payload_bytes) {}

  // Where the next bytes go; at most kMaxIovecs and out.size() entries, at least one while
  // remaining() > 0.
  int Fill(std::span<iovec> out);
  // `bytes` arrived there. Pieces that became whole are verified while they are warm.
  void Advance(int64_t bytes);
  void Divert();
  // All bytes arrived and are right: into the pool with them. REQUIRES: placement(), remaining() is
  // 0, verified() is OK.
  void Store() { lease_.Store(); }
  // After Store: whether the pool has them. An error is what the copy came to.
  absl::StatusOr<bool> Stored() { return lease_.Ready(); }

  int64_t remaining() const { return remaining_; }
  // Set while this lands in the pool.
  const std::optional<BlockPlacement>& placement() const { return placement_; }
  int64_t payload_bytes() const { return frame_.payload_bytes; }
  // DataLoss naming transfer, block, layer and K or V of the first piece whose CRC differs.
  // Complete once remaining() is 0.
  const absl::Status& verified() const { return verified_; }

 private:
  void VerifyPieces();
  void VerifyPiece(const Piece& piece);

  PoolLease lease_;
  std::optional<BlockPlacement> placement_;
  BlockFrame frame_;
  std::vector<std::byte> dropped_;  // tokens that lie in no part, [piece][bytes]
  std::optional<BlockCursor> cursor_;
  int64_t remaining_ = 0;
  // How far pieces are verified, and the bytes of the verified ones.
  size_t verified_pieces_ = 0;
  Pieces::Iterator next_piece_;
  int64_t verified_bytes_ = 0;   // of the payload
  size_t verified_dropped_ = 0;  // of dropped_
  absl::Status verified_;
  std::unique_ptr<std::byte[]> scrap_;
};

class BlockDeparture {
 public:
  // `piece_crcs` are the block's. REQUIRES: the sender dispatched it, and `lease` is a kRead one of
  // its valid tokens and layers, ready.
  BlockDeparture(PoolLease lease, BlockDispatch dispatch, std::vector<uint32_t> piece_crcs);

  // The next bytes; at most out.size() entries.
  int Fill(std::span<iovec> out);
  void Advance(int64_t bytes);
  void Detach();

  int64_t remaining() const { return remaining_; }
  const BlockDispatch& dispatch() const { return dispatch_; }  // the frame has its CRCs
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
