// Which blocks of a sequence travel, and where their tokens land.
//
// A block travels as its pieces in canonical order (pool/pieces.h); of a part-full last block only
// the valid tokens do. A block may also travel in parts of some layers each.
//
// Where block sizes differ, the sender's block lands in parts: its token t is token t of the
// sequence on both sides, so it goes to the receiver's block and slot of that number. Tokens before
// the first that the receiver lacks have no part: they travel, for the checksum, and are dropped.
//
// A block carries full attention's KV always, and a window's where it has tokens of the window that
// the receiver lacks. Sender and receiver both compute that (MovedTokens), so they agree on the
// pieces of every block. The receiver drops a window's tokens for each of its blocks that does not
// need them. The other groups still land.
//
// With several groups the sender's blocks must not be smaller than the receiver's (ReceiveSession
// refuses them). A window may begin inside a block of the receiver. Smaller blocks of the sender
// would fill only the end of that block, and the receiver would cache it as whole.
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

// Windows of groups 1, 2, ... in tokens.
std::vector<int32_t> WindowSizesOf(const KvPoolLayout& layout);
std::vector<int32_t> WindowSizesOf(const KvCacheSpec& spec);

// Which tokens of a sequence a transfer brings of each KV group: those that the receiver lacks, and
// of a window only what the token behind the sequence's end sees.
class MovedTokens {
 public:
  // `windows` as WindowSizesOf; `block_size` is the receiver's. REQUIRES: CheckWindowBlocks.
  MovedTokens(int32_t first_block, std::span<const int32_t> window_first_blocks, int32_t tokens,
              int32_t block_size, std::span<const int32_t> windows);
  // Of a ticket, for a sender with blocks of `block_size`. REQUIRES: CheckTicket (send_session.h).
  MovedTokens(const TransferTicket& ticket, int32_t tokens, int32_t block_size,
              std::span<const int32_t> windows);

  int32_t groups() const { return groups_; }
  // They are [begin(group), tokens), perhaps none.
  int32_t begin(int32_t group) const { return begin_[static_cast<size_t>(group)]; }
  // The groups that travel with a block of the sequence, or that a receiver's block gets.
  // REQUIRES: the block is one of those that hold what the receiver lacks.
  GroupSet GroupsOf(int32_t block, int32_t block_size) const;

 private:
  int32_t tokens_;
  int32_t groups_;
  std::array<int32_t, kMaxKvGroups> begin_ = {};
};

// Whether `window_first_blocks` has one entry for each of so many groups but the first, each in
// [first_block, end_block]. InvalidArgument names `what`, the group, the value and the limits.
absl::Status CheckWindowBlocks(std::string_view what, std::span<const int32_t> window_first_blocks,
                               int32_t groups, int32_t first_block, int32_t end_block);
// Whether `rows` (transport.h) from block `first` of the sequence on have blocks of the pool where
// groups travel, and kNoBlock elsewhere. InvalidArgument names block, group and limit.
absl::Status CheckRows(const KvPoolLayout& layout, std::span<const BlockId> rows,
                       const MovedTokens& moved, int32_t first);

// Returns where a payload lands. It holds tokens [begin, begin + tokens) of the groups in `meant`.
// `rows` are the receiver's blocks of so many groups, of `block_size`; the first begins at
// `first_token`. REQUIRES: they have room up to the payload's end, which is behind first_token.
LandingParts PlaceTokens(int32_t begin, int32_t tokens, int32_t first_token, int32_t block_size,
                         int32_t groups, std::span<const BlockId> rows,
                         GroupSet meant = GroupSet::All());

}  // namespace baton
