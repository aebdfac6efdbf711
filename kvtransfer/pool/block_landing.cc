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
      dropped_(static_cast<size_t>(BlockValidBytes(
          lease_.bytes().layout(), placement_->parts.front().payload_token, frame_.layers))),
      cursor_(std::in_place, lease_.bytes().Runs(dropped_)),
      remaining_(frame_.payload_bytes) {}

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

// Of the sender's piece, the payload's `index`th, wherever its bytes went.
uint32_t BlockLanding::PieceChecksum(int32_t index) const {
  const PieceBytes& landed = lease_.bytes();
  const size_t bytes = dropped_.size() / static_cast<size_t>(landed.pieces());
  return landed.Checksum(
      index, Crc32c(std::span(dropped_).subspan(static_cast<size_t>(index) * bytes, bytes)));
}

void BlockLanding::VerifyPieces() {
  const int64_t bytes = PieceValidBytes(lease_.bytes().layout(), frame_.valid_tokens);
  const int64_t arrived = frame_.payload_bytes - remaining_;
  for (; static_cast<int64_t>(verified_pieces_ + 1) * bytes <= arrived; ++verified_pieces_) {
    const auto index = static_cast<int32_t>(verified_pieces_);
    const uint32_t crc = PieceChecksum(index);
    if (crc != frame_.piece_crcs[index] && verified_.ok()) {
      verified_ = absl::DataLossError(absl::StrFormat(
          "transfer %d block %d %s: CRC32C %08x, the sender's is %08x", frame_.transfer_id,
          frame_.block, PieceName(2 * frame_.layers.first + index), crc, frame_.piece_crcs[index]));
    }
  }
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
