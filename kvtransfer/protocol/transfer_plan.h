// Which bytes of a block travel, in which order, and where they land.
//
// A block travels as its pieces {layer, K or V} in canonical order [layer][K, V], whatever the
// pool's layout; of a part-full last block only the valid tokens do. Pieces that lie side by side
// in the pool become one run, so a full block of a block-major pool is a single run.
//
// A block may also travel in parts of some layers each: a layer range of it is its pieces of these
// layers, in the same order.
//
// Where block sizes differ, the sender's block lands in parts: its token t is token t of the
// sequence on both sides, so it goes to the receiver's block and slot of that number. Tokens before
// the first that the receiver lacks have no part: they travel, for the checksum, and are dropped.
//
// Thread safety: pure functions; BlockCursor belongs to one thread.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "cache/kv_cache_spec.h"
#include "common/strong_int.h"
#include "kvtransfer/transport.h"

namespace baton {

// Blocks that `tokens` fill, the last one perhaps in part.
int32_t BlocksForTokens(int32_t block_size, int32_t tokens);
// Valid tokens of the sequence's block `block`. REQUIRES: block < BlocksForTokens(tokens).
int32_t ValidTokens(int32_t block_size, int32_t tokens, int32_t block);

// Consecutive blocks of a sequence.
struct SequenceBlocks {
  int32_t first = 0;
  int32_t count = 0;
  bool operator==(const SequenceBlocks&) const = default;
};

// The blocks of `block_size` that hold tokens [first_token, tokens); none of them: behind the last.
SequenceBlocks BlocksHolding(int64_t first_token, int32_t tokens, int32_t block_size);
// What a sender with blocks of `block_size` sends for a ticket: its blocks that hold what the
// receiver lacks. REQUIRES: CheckTicket (send_session.h).
SequenceBlocks SenderBlocks(const TransferTicket& ticket, int32_t tokens, int32_t block_size);

// Neighbouring layers of a block. None: all of them.
struct LayerRange {
  int32_t first = 0;
  int32_t count = 0;
  bool all() const { return count == 0; }
  int32_t end() const { return first + count; }
  bool operator==(const LayerRange&) const = default;
};
// The same with a count, in blocks of so many layers.
LayerRange Counted(const KvLayout& layout, LayerRange layers);

// Tokens of a payload that land side by side.
struct LandingPart {
  BlockId block;              // of the receiver's pool
  int32_t block_token = 0;    // the first one's slot in it
  int32_t payload_token = 0;  // and its place in the payload
  int32_t tokens = 0;
  bool operator==(const LandingPart&) const = default;
};
// In the payload's order. What has no part comes before the first.
using LandingParts = absl::InlinedVector<LandingPart, 1>;

// Where a payload of the sequence's tokens [begin, begin + tokens) lands. `blocks` are the
// receiver's, of `block_size`; the first begins at `first_token`. REQUIRES: they have room up to
// the payload's end, which is behind first_token.
LandingParts PlaceTokens(int32_t begin, int32_t tokens, int32_t first_token, int32_t block_size,
                         std::span<const BlockId> blocks);

int32_t PieceCount(const KvLayout& layout, LayerRange layers = {});     // layers * 2
int64_t PieceValidBytes(const KvLayout& layout, int32_t valid_tokens);  // of one piece
int64_t BlockValidBytes(const KvLayout& layout, int32_t valid_tokens,
                        LayerRange layers = {});  // of all their pieces

// "layer 3 V": what error messages call piece 7.
std::string PieceName(int32_t piece);

// The runs of one block, coalesced. REQUIRES: block in the pool, valid_tokens in [1, block_size].
std::vector<iovec> BlockRuns(const RegisteredPool& pool, BlockId block, int32_t valid_tokens,
                             LayerRange layers = {});
// The same of a payload's parts. `dropped` has room for what comes before the first of them, of
// all pieces. REQUIRES: parts that PlaceTokens made for blocks of the pool.
std::vector<iovec> LandingRuns(const RegisteredPool& pool, std::span<const LandingPart> parts,
                               std::span<std::byte> dropped, LayerRange layers = {});
// Where a piece of a part lies.
std::span<std::byte> PartOfPiece(const RegisteredPool& pool, const LandingPart& part,
                                 int32_t piece);

// CRC32C of every piece in canonical order.
std::vector<uint32_t> PieceChecksums(const RegisteredPool& pool, BlockId block,
                                     int32_t valid_tokens, LayerRange layers = {});

// Walks over the bytes of one block for scatter/gather I/O.
class BlockCursor {
 public:
  explicit BlockCursor(std::vector<iovec> runs);

  int64_t remaining() const { return remaining_; }
  bool done() const { return remaining_ == 0; }
  // Describes the next bytes; returns how many entries were filled (at most out.size()).
  int Fill(std::span<iovec> out) const;
  // `bytes` of them were moved. REQUIRES: bytes <= remaining().
  void Advance(int64_t bytes);

 private:
  std::vector<iovec> runs_;
  size_t run_ = 0;
  size_t run_done_ = 0;
  int64_t remaining_ = 0;
};

}  // namespace baton
