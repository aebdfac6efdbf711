// Piece checksums of a sender's blocks, taken once and not for each departure.
//
// Checksums are kept per group, because the blocks of one row are freed at different times.
//
// Only what the engine has reported as full (KvTransport::Written) is kept: such a block does not
// change until it is reported again or a transfer lands in it. A report only marks; the checksums
// are taken when the block first departs, which for a block computed for a receiver is when it
// fills. Should a report ever be missed, the receiver finds a checksum that does not fit, and
// computes: no byte is published for it.
//
// Size: 4 bytes a piece (0.07 % of an f16 pool of SmolLM2).
//
// Thread safety: belongs to one thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/strong_int.h"
#include "kvtransfer/pool/piece_bytes.h"
#include "kvtransfer/pool/pieces.h"

namespace baton {

class BlockChecksums {
 public:
  // `layout` is the pool's and outlives this.
  explicit BlockChecksums(const KvPoolLayout& layout) : layout_(layout) {}
  explicit BlockChecksums(KvPoolLayout&& layout) = delete;

  // Of the blocks' first `valid_tokens` tokens, in canonical order. They are taken of `bytes`,
  // which are these tokens of these layers, where none are kept. Those of a layer range never are:
  // the layers behind it may still be written. REQUIRES: blocks in the pool, valid_tokens in
  // [1, block_size].
  std::vector<uint32_t> Of(const GroupBlocks& blocks, int32_t valid_tokens, LayerRange layers,
                           const PieceBytes& bytes);

  // Blocks of a group that were written: whole ones, which stay as they are, and others. Groups
  // and ids outside the pool are ignored.
  void OnWritten(std::span<const BlockId> full, std::span<const BlockId> part, int32_t group = 0);
  // Something lands in them: rows [block of each group] (transport.h).
  void Forget(std::span<const BlockId> rows);

 private:
  bool InPool(BlockId block, int32_t group) const {
    return block.value() >= 0 && block.value() < layout_.group(group).num_blocks();
  }
  int64_t NumberOf(BlockId block, int32_t group) const {
    return layout_.first_block(group) + block.value();
  }
  // Those that are kept for each group's block, or null. Empty: not taken yet.
  using Kept = std::array<std::vector<uint32_t>*, kMaxKvGroups>;
  static std::vector<uint32_t> Merge(const Kept& kept, const PieceBytes& bytes);

  const KvPoolLayout& layout_;
  // By the block's number among those of all groups. Empty: not taken yet.
  absl::flat_hash_map<int64_t, std::vector<uint32_t>> full_;
};

}  // namespace baton
