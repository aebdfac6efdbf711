#include "kvtransfer/protocol/transfer_plan.h"

#include <algorithm>

namespace baton {

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

}  // namespace baton
