// Which bytes of blocks are meant: pieces {layer, K or V} of tokens that lie side by side.
//
// A block's pieces have one canonical order, [layer][K, V], whatever the pool's layout. A layer
// range of a block is its pieces of these layers, in the same order.
//
// Thread safety: pure functions and values.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "cache/kv_cache_spec.h"
#include "common/strong_int.h"

namespace baton {

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

// Tokens of a payload that lie side by side in a block of the pool.
struct LandingPart {
  BlockId block;
  int32_t block_token = 0;    // the first one's slot in the block
  int32_t payload_token = 0;  // and its place in the payload
  int32_t tokens = 0;
  bool operator==(const LandingPart&) const = default;
};
// In the payload's order, without a gap between them.
using LandingParts = absl::InlinedVector<LandingPart, 1>;

int32_t TokensOf(const LandingParts& parts);
// The first `valid_tokens` tokens of a block.
inline LandingParts LeadingTokens(BlockId block, int32_t valid_tokens) {
  return {LandingPart{.block = block, .tokens = valid_tokens}};
}

int32_t PieceCount(const KvLayout& layout, LayerRange layers = {});     // layers * 2
int64_t PieceValidBytes(const KvLayout& layout, int32_t valid_tokens);  // of one piece
int64_t BlockValidBytes(const KvLayout& layout, int32_t valid_tokens,
                        LayerRange layers = {});  // of all their pieces

// "layer 3 V": what error messages call piece 7 of a whole block.
std::string PieceName(int32_t piece);

}  // namespace baton
