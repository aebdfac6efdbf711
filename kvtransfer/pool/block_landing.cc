#include "kvtransfer/pool/block_landing.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/crc32c.h"

namespace baton {
namespace {

constexpr size_t kScrapBytes = 64 << 10;

}  // namespace

BlockLanding::BlockLanding(PoolLease lease, BlockPlacement placement, BlockFrame frame)
    : lease_(std::move(lease)),
      placement_(std::move(placement)),
      frame_(std::move(frame)),
      dropped_(static_cast<size_t>(lease_.bytes().DroppedBytes())),
      cursor_(std::in_place, lease_.bytes().Runs(dropped_)),
      remaining_(frame_.payload_bytes),
      next_piece_(lease_.bytes().pieces().begin()) {}

int BlockLanding::Fill(std::span<iovec> out) {
  if (placement_) return cursor_->Fill(out);
  if (scrap_ == nullptr) scrap_ = std::make_unique_for_overwrite<std::byte[]>(kScrapBytes);
  out[0] = {scrap_.get(), static_cast<size_t>(std::min<int64_t>(remaining_, kScrapBytes))};
  return 1;
}

void BlockLanding::Advance(int64_t bytes) {
  remaining_ -= bytes;
  if (!placement_) return;
  cursor_->Advance(bytes);
  VerifyPieces();
}

void BlockLanding::Divert() {
  placement_.reset();
  cursor_.reset();
  lease_ = PoolLease();
}

void BlockLanding::VerifyPieces() {
  const int64_t arrived = frame_.payload_bytes - remaining_;
  while (verified_pieces_ < frame_.piece_crcs.size()) {
    const Piece piece = *next_piece_;
    const int64_t bytes = PieceValidBytes(lease_.bytes().layout(), piece, frame_.valid_tokens);
    if (verified_bytes_ + bytes > arrived) return;
    VerifyPiece(piece);
    verified_bytes_ += bytes;
    ++next_piece_;
    ++verified_pieces_;
  }
}

// Verifies a piece as the sender sent it: dropped tokens included.
void BlockLanding::VerifyPiece(const Piece& piece) {
  const PieceBytes& landed = lease_.bytes();
  uint32_t crc = 0;
  if (!dropped_.empty()) {
    const auto dropped = static_cast<size_t>(landed.DroppedBytes(piece));
    crc = Crc32c(std::span(dropped_).subspan(verified_dropped_, dropped));
    verified_dropped_ += dropped;
  }
  crc = landed.Checksum(piece, crc);
  const uint32_t theirs = frame_.piece_crcs[verified_pieces_];
  if (crc == theirs || !verified_.ok()) return;
  verified_ = absl::DataLossError(absl::StrFormat(
      "transfer %d block %d %s: CRC32C %08x, the sender's is %08x", frame_.transfer_id,
      frame_.block, PieceName(landed.layout(), piece), crc, theirs));
}

BlockDeparture::BlockDeparture(PoolLease lease, BlockDispatch dispatch,
                               std::vector<uint32_t> piece_crcs)
    : lease_(std::move(lease)),
      dispatch_(std::move(dispatch)),
      cursor_(lease_.bytes().Runs()),
      remaining_(cursor_.remaining()) {
  dispatch_.frame.piece_crcs = std::move(piece_crcs);
}

int BlockDeparture::Fill(std::span<iovec> out) {
  if (!detached_) return cursor_.Fill(out);
  out[0] = {copy_.data() + (copy_.size() - remaining_), static_cast<size_t>(remaining_)};
  return 1;
}

void BlockDeparture::Advance(int64_t bytes) {
  remaining_ -= bytes;
  if (!detached_) cursor_.Advance(bytes);
}

void BlockDeparture::Detach() {
  if (detached_) return;
  copy_.reserve(remaining_);
  iovec runs[kMaxIovecs];
  while (!cursor_.done()) {
    const int count = cursor_.Fill(runs);
    for (int i = 0; i < count; ++i) {
      const auto* from = static_cast<const std::byte*>(runs[i].iov_base);
      copy_.insert(copy_.end(), from, from + runs[i].iov_len);
      cursor_.Advance(static_cast<int64_t>(runs[i].iov_len));
    }
  }
  detached_ = true;
  lease_ = PoolLease();
}

}  // namespace baton
