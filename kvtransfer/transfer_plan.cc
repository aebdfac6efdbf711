#include "kvtransfer/transfer_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/crc32c.h"

namespace baton {

int32_t BlocksForTokens(const KvLayout& layout, int32_t tokens) {
  return static_cast<int32_t>((int64_t{tokens} + layout.block_size() - 1) / layout.block_size());
}

int32_t ValidTokens(const KvLayout& layout, int32_t tokens, int32_t block) {
  const int64_t left = int64_t{tokens} - int64_t{block} * layout.block_size();
  return static_cast<int32_t>(std::min<int64_t>(left, layout.block_size()));
}

int32_t PieceCount(const KvLayout& layout) { return layout.group().layers * 2; }

int64_t PieceValidBytes(const KvLayout& layout, int32_t valid_tokens) {
  return layout.piece_bytes() / layout.block_size() * valid_tokens;
}

int64_t BlockValidBytes(const KvLayout& layout, int32_t valid_tokens) {
  return PieceValidBytes(layout, valid_tokens) * PieceCount(layout);
}

std::string PieceName(int32_t piece) {
  return absl::StrCat("layer ", piece / 2, piece % 2 == 0 ? " K" : " V");
}

std::vector<ByteRun> BlockRuns(const KvLayout& layout, BlockId block, int32_t valid_tokens) {
  CHECK(block.value() >= 0 && block.value() < layout.num_blocks());
  CHECK(valid_tokens >= 1 && valid_tokens <= layout.block_size());
  const int64_t bytes = PieceValidBytes(layout, valid_tokens);
  std::vector<ByteRun> runs;
  for (int32_t piece = 0; piece < PieceCount(layout); ++piece) {
    const int64_t offset = layout.PieceOffset(piece / 2, piece % 2 == 1, block.value());
    if (!runs.empty() && runs.back().offset + runs.back().bytes == offset) {
      runs.back().bytes += bytes;
    } else {
      runs.push_back({offset, bytes});
    }
  }
  return runs;
}

std::vector<uint32_t> PieceChecksums(const RegisteredPool& pool, BlockId block,
                                     int32_t valid_tokens) {
  const KvLayout& layout = pool.layout;
  const size_t bytes = PieceValidBytes(layout, valid_tokens);
  std::vector<uint32_t> checksums(PieceCount(layout));
  for (int32_t piece = 0; piece < PieceCount(layout); ++piece) {
    const int64_t offset = layout.PieceOffset(piece / 2, piece % 2 == 1, block.value());
    checksums[piece] = Crc32c(std::span<const std::byte>(pool.base + offset, bytes));
  }
  return checksums;
}

BlockCursor::BlockCursor(const RegisteredPool& pool, BlockId block, int32_t valid_tokens)
    : base_(pool.base),
      runs_(BlockRuns(pool.layout, block, valid_tokens)),
      remaining_(BlockValidBytes(pool.layout, valid_tokens)) {}

int BlockCursor::Fill(std::span<iovec> out) const {
  int filled = 0;
  int64_t skip = run_done_;
  for (size_t i = run_; i < runs_.size() && filled < static_cast<int>(out.size()); ++i) {
    out[filled++] = {base_ + runs_[i].offset + skip, static_cast<size_t>(runs_[i].bytes - skip)};
    skip = 0;
  }
  return filled;
}

void BlockCursor::Advance(int64_t bytes) {
  CHECK_LE(bytes, remaining_);
  remaining_ -= bytes;
  while (bytes > 0) {
    const int64_t step = std::min(bytes, runs_[run_].bytes - run_done_);
    bytes -= step;
    run_done_ += step;
    if (run_done_ == runs_[run_].bytes) {
      ++run_;
      run_done_ = 0;
    }
  }
}

}  // namespace baton
