#include "kvtransfer/pool/piece_bytes.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/crc32c.h"

namespace baton {
namespace {

// Appends `bytes`, merged with the last run if they follow it in memory.
void AppendRun(std::vector<iovec>& runs, std::span<std::byte> bytes) {
  if (bytes.empty()) return;
  if (!runs.empty() &&
      static_cast<std::byte*>(runs.back().iov_base) + runs.back().iov_len == bytes.data()) {
    runs.back().iov_len += bytes.size();
  } else {
    runs.push_back({bytes.data(), bytes.size()});
  }
}

}  // namespace

PieceBytes::PieceBytes(std::byte* base, const KvPoolLayout& layout, LandingParts parts,
                       LayerRange layers)
    : base_(base), layout_(&layout), parts_(std::move(parts)), layers_(Counted(layout, layers)) {
  for (const LandingPart& part : parts_) {
    for (int32_t group = 0; group < kMaxKvGroups; ++group) {
      const BlockId block = part.blocks[group];
      if (block == kNoBlock) continue;
      CHECK(group < layout.groups() && block.value() >= 0 &&
            block.value() < layout.group(group).num_blocks());
      groups_.Add(group);
    }
    CHECK(part.tokens >= 1 && part.block_token >= 0 &&
          part.block_token + part.tokens <= layout.block_size());
  }
}

std::span<std::byte> PieceBytes::Part(const Piece& piece, size_t part) const {
  const LandingPart& tokens = parts_[part];
  const BlockId block = tokens.blocks[layout_->place(piece.layer).group];
  if (block == kNoBlock) return {};
  std::byte* const at = base_ + layout_->PieceOffset(piece.layer, piece.plane, block.value()) +
                        PieceValidBytes(*layout_, piece, tokens.block_token);
  return {at, static_cast<size_t>(PieceValidBytes(*layout_, piece, tokens.tokens))};
}

int64_t PieceBytes::DroppedBytes(const Piece& piece) const {
  const int32_t group = layout_->place(piece.layer).group;
  for (const LandingPart& part : parts_) {
    if (part.blocks[group] != kNoBlock) return PieceValidBytes(*layout_, piece, part.payload_token);
  }
  return 0;
}

int64_t PieceBytes::DroppedBytes() const {
  const LandingPart& first = parts_.front();
  if (first.payload_token == 0 && first.blocks.groups() == groups_) return 0;
  int64_t bytes = 0;
  for (const Piece piece : pieces()) bytes += DroppedBytes(piece);
  return bytes;
}

std::vector<iovec> PieceBytes::Runs(std::span<std::byte> dropped) const {
  std::vector<iovec> runs;
  for (const Piece piece : pieces()) {
    if (!dropped.empty()) {
      const auto bytes = static_cast<size_t>(DroppedBytes(piece));
      AppendRun(runs, dropped.first(bytes));
      dropped = dropped.subspan(bytes);
    }
    for (size_t part = 0; part < parts_.size(); ++part) AppendRun(runs, Part(piece, part));
  }
  return runs;
}

uint32_t PieceBytes::Checksum(const Piece& piece, uint32_t crc) const {
  for (size_t part = 0; part < parts_.size(); ++part) crc = ExtendCrc32c(crc, Part(piece, part));
  return crc;
}

std::vector<uint32_t> PieceBytes::Checksums() const {
  std::vector<uint32_t> checksums;
  checksums.reserve(static_cast<size_t>(PieceCount(*layout_, layers_, groups_)));
  for (const Piece piece : pieces()) checksums.push_back(Checksum(piece));
  return checksums;
}

BlockCursor::BlockCursor(std::vector<iovec> runs) : runs_(std::move(runs)) {
  for (const iovec& run : runs_) remaining_ += static_cast<int64_t>(run.iov_len);
}

int BlockCursor::Fill(std::span<iovec> out) const {
  int filled = 0;
  size_t skip = run_done_;
  for (size_t i = run_; i < runs_.size() && filled < static_cast<int>(out.size()); ++i) {
    out[filled++] = {static_cast<std::byte*>(runs_[i].iov_base) + skip, runs_[i].iov_len - skip};
    skip = 0;
  }
  return filled;
}

void BlockCursor::Advance(int64_t bytes) {
  CHECK_LE(bytes, remaining_);
  remaining_ -= bytes;
  for (auto left = static_cast<size_t>(bytes); left > 0;) {
    const size_t step = std::min(left, runs_[run_].iov_len - run_done_);
    left -= step;
    run_done_ += step;
    if (run_done_ == runs_[run_].iov_len) {
      ++run_;
      run_done_ = 0;
    }
  }
}

}  // namespace baton
