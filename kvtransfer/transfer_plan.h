// Which bytes of a block travel, and in which order.
//
// A block travels as its pieces {layer, K or V} in canonical order [layer][K, V], whatever the
// pool's layout; of a part-full last block only the valid tokens do. Pieces that lie side by side
// in the pool become one run, so a full block of a block-major pool is a single run.
//
// Thread safety: pure functions; BlockCursor belongs to one thread.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cache/kv_cache_spec.h"
#include "common/strong_int.h"
#include "kvtransfer/transport.h"

namespace baton {

struct ByteRun {
  int64_t offset = 0;  // in the pool
  int64_t bytes = 0;
  bool operator==(const ByteRun&) const = default;
};

// Blocks that `tokens` fill, the last one perhaps in part.
int32_t BlocksForTokens(const KvLayout& layout, int32_t tokens);
// Valid tokens of the sequence's block `block`. REQUIRES: block < BlocksForTokens(tokens).
int32_t ValidTokens(const KvLayout& layout, int32_t tokens, int32_t block);

int32_t PieceCount(const KvLayout& layout);                             // layers * 2
int64_t PieceValidBytes(const KvLayout& layout, int32_t valid_tokens);  // of one piece
int64_t BlockValidBytes(const KvLayout& layout, int32_t valid_tokens);  // of all pieces

// "layer 3 V": what error messages call piece 7.
std::string PieceName(int32_t piece);

// The runs of one block, coalesced. REQUIRES: block in the pool, valid_tokens in [1, block_size].
std::vector<ByteRun> BlockRuns(const KvLayout& layout, BlockId block, int32_t valid_tokens);

// CRC32C of every piece in canonical order.
std::vector<uint32_t> PieceChecksums(const RegisteredPool& pool, BlockId block,
                                     int32_t valid_tokens);

// Walks over the bytes of one block for scatter/gather I/O.
class BlockCursor {
 public:
  BlockCursor(const RegisteredPool& pool, BlockId block, int32_t valid_tokens);

  int64_t remaining() const { return remaining_; }
  bool done() const { return remaining_ == 0; }
  // Describes the next bytes; returns how many entries were filled (at most out.size()).
  int Fill(std::span<iovec> out) const;
  // `bytes` of them were moved. REQUIRES: bytes <= remaining().
  void Advance(int64_t bytes);

 private:
  std::byte* base_;
  std::vector<ByteRun> runs_;
  size_t run_ = 0;
  int64_t run_done_ = 0;
  int64_t remaining_;
};

}  // namespace baton
