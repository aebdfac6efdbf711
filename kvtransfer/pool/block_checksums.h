// Cache of piece checksums for blocks that a sender sends more than once.
//
// Checksums are kept per KV group, because the blocks of one row are freed at different times.
//
// Only blocks that the engine reported as full (KvTransport::Written) are kept. Such a block does
// not change until it is reported again or a transfer lands in it. A report only marks the block.
// The checksums are computed when the block is first sent. If a report were ever missed, the
// receiver would find a wrong checksum, publish nothing and compute the tokens itself.
//
// A device that copies a block for NCCL computes its checksums (device_block_copies.h). They are
// kept in the same way, so damage in the pool's memory between two sends is noticed over NCCL, too.
//
// Size: 4 bytes a piece (0.07 % of an f16 pool of SmolLM2).
//
// Thread safety: belongs to one thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
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

  // Returns the checksums of the blocks' first `valid_tokens` tokens, in canonical order. `bytes`
  // are these tokens of these layers; checksums that are not kept are computed from them. Checksums
  // of a layer range are never kept, because the layers behind it may still be written. REQUIRES:
  // blocks in the pool, valid_tokens in [1, block_size].
  std::vector<uint32_t> Of(const GroupBlocks& blocks, int32_t valid_tokens, LayerRange layers,
                           const PieceBytes& bytes);
  // Same, but `computed` has the checksums of the bytes that a device copied. Those that are kept
  // replace them. REQUIRES: nothing has written to the blocks since the copy; one checksum for each
  // piece.
  std::vector<uint32_t> Of(const GroupBlocks& blocks, int32_t valid_tokens, LayerRange layers,
                           std::span<const uint32_t> computed);

  // Blocks of a group were written. `full` blocks are complete and will not change; `part` blocks
  // may. Groups and ids outside the pool are ignored.
  void OnWritten(std::span<const BlockId> full, std::span<const BlockId> part, int32_t group = 0);
  // Drops checksums of blocks in which a transfer lands. `rows` are [block of each group]
  // (transport.h).
  void Forget(std::span<const BlockId> rows);

 private:
  bool InPool(BlockId block, int32_t group) const {
    return block.value() >= 0 && block.value() < layout_.group(group).num_blocks();
  }
  int64_t NumberOf(BlockId block, int32_t group) const {
    return layout_.first_block(group) + block.value();
  }
  // Kept checksums of each group's block, or null. Empty: marked, but not computed yet.
  using Kept = std::array<std::vector<uint32_t>*, kMaxKvGroups>;
  // Returns nothing if no checksums of this part of the blocks are to be kept.
  std::optional<Kept> Find(const GroupBlocks& blocks, int32_t valid_tokens, LayerRange layers);
  // `checksum_of` computes the checksum of a piece, given its index. It is asked only for pieces
  // that are not kept, and their checksums are kept if their blocks are full.
  template <typename ChecksumOf>
  std::vector<uint32_t> Merge(const Kept& kept, GroupSet groups, const ChecksumOf& checksum_of);

  const KvPoolLayout& layout_;
  // Key: the block's number among the blocks of all groups. Empty: not computed yet.
  absl::flat_hash_map<int64_t, std::vector<uint32_t>> full_;
};

}  // namespace baton
