// Which blocks of a sequence travel, and where their tokens land.
//
// A block travels as its pieces in canonical order (pool/pieces.h); of a part-full last block only
// the valid tokens do. A block may also travel in parts of some layers each.
//
// Where block sizes differ, the sender's block lands in parts: its token t is token t of the
// sequence on both sides, so it goes to the receiver's block and slot of that number. Tokens before
// the first that the receiver lacks have no part: they travel, for the checksum, and are dropped.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>

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

// Where a payload of the sequence's tokens [begin, begin + tokens) lands. `blocks` are the
// receiver's, of `block_size`; the first begins at `first_token`. REQUIRES: they have room up to
// the payload's end, which is behind first_token.
LandingParts PlaceTokens(int32_t begin, int32_t tokens, int32_t first_token, int32_t block_size,
                         std::span<const BlockId> blocks);

}  // namespace baton
