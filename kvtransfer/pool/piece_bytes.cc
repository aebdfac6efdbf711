#include "kvtransfer/pool/piece_bytes.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/crc32c.h"

namespace baton {
namespace {

// One run where it goes on in memory.
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

PieceBytes::PieceBytes(std::byte* base, const KvLayout& layout, LandingParts parts,
                       LayerRange layers)
    : base_(base), layout_(&layout), parts_(std::move(parts)), layers_(Counted(layout, layers)) {
  for (const LandingPart& part : parts_) {
    CHECK(part.block.value() >= 0 && part.block.value() < layout.num_blocks());
    CHECK(part.tokens >= 1 && part.block_token >= 0 &&
          part.block_token + part.tokens <= layout.block_size());
  }
}

std::span<std::byte> PieceBytes::Part(int32_t piece, size_t part) const {
  const LandingPart& tokens = parts_[part];
  const int32_t number = first_piece() + piece;
  std::byte* const at = base_ +
                        layout_->PieceOffset(number / 2, number % 2 == 1, tokens.block.value()) +
                        PieceValidBytes(*layout_, tokens.block_token);
  return {at, static_cast<size_t>(PieceValidBytes(*layout_, tokens.tokens))};
}

std::vector<iovec> PieceBytes::Runs(std::span<std::byte> dropped) const {
  std::vector<iovec> runs;
  const size_t dropped_bytes = dropped.size() / static_cast<size_t>(pieces());  // of each piece
  for (int32_t piece = 0; piece < pieces(); ++piece) {
    AppendRun(runs, dropped.subspan(static_cast<size_t>(piece) * dropped_bytes, dropped_bytes));
    for (size_t part = 0; part < parts_.size(); ++part) AppendRun(runs, Part(piece, part));
  }
  return runs;
}

uint32_t PieceBytes::Checksum(int32_t piece, uint32_t crc) const {
  for (size_t part = 0; part < parts_.size(); ++part) crc = ExtendCrc32c(crc, Part(piece, part));
  return crc;
}

std::vector<uint32_t> PieceBytes::Checksums() const {
  std::vector<uint32_t> checksums(static_cast<size_t>(pieces()));
  int32_t piece = 0;
  for (uint32_t& checksum : checksums) checksum = Checksum(piece++);
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
