#include "kvtransfer/protocol/transfer_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
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

int32_t BlocksForTokens(int32_t block_size, int32_t tokens) {
  return static_cast<int32_t>((int64_t{tokens} + block_size - 1) / block_size);
}

int32_t ValidTokens(int32_t block_size, int32_t tokens, int32_t block) {
  const int64_t left = int64_t{tokens} - int64_t{block} * block_size;
  return static_cast<int32_t>(std::min<int64_t>(left, block_size));
}

SequenceBlocks BlocksHolding(int64_t first_token, int32_t tokens, int32_t block_size) {
  const int32_t end = BlocksForTokens(block_size, tokens);
  if (first_token >= tokens) return {.first = end, .count = 0};
  const auto first = static_cast<int32_t>(first_token / block_size);
  return {.first = first, .count = end - first};
}

SequenceBlocks SenderBlocks(const TransferTicket& ticket, int32_t tokens, int32_t block_size) {
  const int32_t theirs = ticket.block_size == 0 ? block_size : ticket.block_size;
  return BlocksHolding(int64_t{ticket.first_block} * theirs, tokens, block_size);
}

LandingParts PlaceTokens(int32_t begin, int32_t tokens, int32_t first_token, int32_t block_size,
                         std::span<const BlockId> blocks) {
  LandingParts parts;
  const int32_t end = begin + tokens;
  for (int32_t at = std::max(begin, first_token); at < end;) {
    const int32_t index = (at - first_token) / block_size;
    const int32_t slot = (at - first_token) % block_size;
    const int32_t count = std::min(end - at, block_size - slot);
    parts.push_back({.block = blocks[static_cast<size_t>(index)],
                     .block_token = slot,
                     .payload_token = at - begin,
                     .tokens = count});
    at += count;
  }
  return parts;
}

LayerRange Counted(const KvLayout& layout, LayerRange layers) {
  return layers.all() ? LayerRange{.first = 0, .count = layout.group().layers} : layers;
}

int32_t PieceCount(const KvLayout& layout, LayerRange layers) {
  return Counted(layout, layers).count * 2;
}

int64_t PieceValidBytes(const KvLayout& layout, int32_t valid_tokens) {
  return layout.piece_bytes() / layout.block_size() * valid_tokens;
}

int64_t BlockValidBytes(const KvLayout& layout, int32_t valid_tokens, LayerRange layers) {
  return PieceValidBytes(layout, valid_tokens) * PieceCount(layout, layers);
}

std::string PieceName(int32_t piece) {
  return absl::StrCat("layer ", piece / 2, piece % 2 == 0 ? " K" : " V");
}

std::span<std::byte> PartOfPiece(const RegisteredPool& pool, const LandingPart& part,
                                 int32_t piece) {
  const KvLayout& layout = pool.layout;
  std::byte* const at = pool.base +
                        layout.PieceOffset(piece / 2, piece % 2 == 1, part.block.value()) +
                        PieceValidBytes(layout, part.block_token);
  return {at, static_cast<size_t>(PieceValidBytes(layout, part.tokens))};
}

std::vector<iovec> BlockRuns(const RegisteredPool& pool, BlockId block, int32_t valid_tokens,
                             LayerRange layers) {
  const LandingPart whole{.block = block, .tokens = valid_tokens};
  return LandingRuns(pool, std::span(&whole, 1), {}, layers);
}

std::vector<iovec> LandingRuns(const RegisteredPool& pool, std::span<const LandingPart> parts,
                               std::span<std::byte> dropped, LayerRange layers) {
  const int32_t pieces = PieceCount(pool.layout, layers);
  for (const LandingPart& part : parts) {
    CHECK(part.block.value() >= 0 && part.block.value() < pool.layout.num_blocks());
    CHECK(part.tokens >= 1 && part.block_token >= 0 &&
          part.block_token + part.tokens <= pool.layout.block_size());
  }
  std::vector<iovec> runs;
  const size_t dropped_bytes = dropped.size() / static_cast<size_t>(pieces);  // of each piece
  for (int32_t piece = 0; piece < pieces; ++piece) {
    AppendRun(runs, dropped.subspan(static_cast<size_t>(piece) * dropped_bytes, dropped_bytes));
    for (const LandingPart& part : parts) {
      AppendRun(runs, PartOfPiece(pool, part, 2 * layers.first + piece));
    }
  }
  return runs;
}

std::vector<uint32_t> PieceChecksums(const RegisteredPool& pool, BlockId block,
                                     int32_t valid_tokens, LayerRange layers) {
  const KvLayout& layout = pool.layout;
  const size_t bytes = PieceValidBytes(layout, valid_tokens);
  std::vector<uint32_t> checksums(PieceCount(layout, layers));
  int32_t piece = 2 * layers.first;
  for (uint32_t& checksum : checksums) {
    const int64_t offset = layout.PieceOffset(piece / 2, piece % 2 == 1, block.value());
    checksum = Crc32c(std::span<const std::byte>(pool.base + offset, bytes));
    ++piece;
  }
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
