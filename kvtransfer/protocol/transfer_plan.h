// Computes which blocks of a sequence travel, and where their tokens land.
//
// A block travels as its pieces in canonical order (pool/pieces.h). Of a partly full last block,
// only the valid tokens travel. A block may also travel in slices of some layers each.
//
// If the block sizes differ, the sender's block is split over several receiver blocks. Its token t
// is token t of the sequence on both sides, so it goes to the receiver's block and slot of that
// number. Tokens before the first one that the receiver lacks have no place. They travel because
// the checksum needs them, and are dropped.
//
// A block always carries the KV of full attention (group 0). It carries a window group if it has
// tokens of that window that the receiver lacks. Sender and receiver both compute this
// (MovedTokens), so they agree on the pieces of every block. The receiver drops a window's tokens
// if its own block does not need them. The tokens of the other groups still land.
//
// With several groups, the sender's blocks must not be smaller than the receiver's; ReceiveSession
// refuses them. The reason: a window may begin inside a receiver block. Smaller sender blocks would
// fill only the end of that block, and the receiver would cache it as whole.
//
// Thread safety: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "cache/kv_pool_layout.h"
#include "common/strong_int.h"
#include "kvtransfer/pool/pieces.h"
#include "kvtransfer/transport.h"

namespace baton {

// Returns the number of blocks that `tokens` fill; the last one may be partly full.
int32_t BlocksForTokens(int32_t block_size, int32_t tokens);
// Returns the valid tokens of the sequence's block `block`. REQUIRES: block <
// BlocksForTokens(tokens).
int32_t ValidTokens(int32_t block_size, int32_t tokens, int32_t block);

// Consecutive blocks of a sequence.
struct SequenceBlocks {
  int32_t first = 0;
  int32_t count = 0;
  bool operator==(const SequenceBlocks&) const = default;
};

// Returns the blocks of `block_size` that hold tokens [first_token, tokens). If there are none,
// `first` is the index behind the last block.
SequenceBlocks BlocksHolding(int64_t first_token, int32_t tokens, int32_t block_size);
// Returns the blocks of `block_size` that a sender sends for a ticket: those that hold what the
// receiver lacks. REQUIRES: CheckTicket (send_session.h).
SequenceBlocks SenderBlocks(const TransferTicket& ticket, int32_t tokens, int32_t block_size);

// Returns the window sizes of groups 1, 2, ... in tokens.
std::vector<int32_t> WindowSizesOf(const KvPoolLayout& layout);
std::vector<int32_t> WindowSizesOf(const KvCacheSpec& spec);

// Tokens of a sequence that a transfer carries, for each KV group. They are the tokens that the
// receiver lacks. Of a window group, they are also limited to what the token behind the sequence's
// end sees.
class MovedTokens {
 public:
  // `windows` as from WindowSizesOf. `block_size` is the receiver's. REQUIRES: CheckWindowBlocks.
  MovedTokens(int32_t first_block, std::span<const int32_t> window_first_blocks, int32_t tokens,
              int32_t block_size, std::span<const int32_t> windows);
  // For a ticket and a sender with blocks of `block_size`. REQUIRES: CheckTicket (send_session.h).
  MovedTokens(const TransferTicket& ticket, int32_t tokens, int32_t block_size,
              std::span<const int32_t> windows);

  int32_t groups() const { return groups_; }
  // The tokens are [begin(group), tokens), which may be empty.
  int32_t begin(int32_t group) const { return begin_[static_cast<size_t>(group)]; }
  // Returns the groups that travel with a block of the sequence, or that a receiver's block gets.
  // REQUIRES: the block holds tokens that the receiver lacks.
  GroupSet GroupsOf(int32_t block, int32_t block_size) const;

 private:
  int32_t tokens_;
  int32_t groups_;
  std::array<int32_t, kMaxKvGroups> begin_ = {};
};

// Checks that `window_first_blocks` has one entry for each group but the first, each in
// [first_block, end_block]. InvalidArgument names `what`, the group, the value and the limits.
absl::Status CheckWindowBlocks(std::string_view what, std::span<const int32_t> window_first_blocks,
                               int32_t groups, int32_t first_block, int32_t end_block);
// Checks `rows` (transport.h), which start at block `first` of the sequence. They must name blocks
// of the pool for groups that travel, and kNoBlock for others. InvalidArgument names block, group
// and limit.
absl::Status CheckRows(const KvPoolLayout& layout, std::span<const BlockId> rows,
                       const MovedTokens& moved, int32_t first);

// Returns where a payload lands. It holds tokens [begin, begin + tokens) of the groups in `meant`.
// `rows` are the receiver's blocks, of `groups` KV groups and `block_size` tokens. The first of
// them begins at `first_token`. REQUIRES: the rows have room up to the payload's end, which is
// behind first_token.
LandingParts PlaceTokens(int32_t begin, int32_t tokens, int32_t first_token, int32_t block_size,
                         int32_t groups, std::span<const BlockId> rows,
                         GroupSet meant = GroupSet::All());

}  // namespace baton
