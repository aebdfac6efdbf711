// Stores the units of cached blocks by block id. RadixTree compares prompts with them.
//
// A unit has 64 bits, but the upper half of a token is zero. So lower and upper halves are stored
// in two planes. The upper plane is read and written only for blocks that need it. A walk along a
// long prompt therefore reads half as much memory. Blocks with consecutive ids are adjacent and are
// compared in one run. Memory is touched only as ids are used.
//
// Thread safety: used by the engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "cache/cache_key.h"
#include "common/strong_int.h"

namespace baton {

class BlockUnits {
 public:
  // REQUIRES: block_size >= 1.
  BlockUnits(int32_t block_size, int32_t blocks);

  int32_t block_size() const { return block_size_; }

  // Sets the units of these blocks. REQUIRES: units.size() == blocks.size() * block_size.
  void Write(std::span<const BlockId> blocks, std::span<const CacheUnit> units);
  // Returns true if blocks `first`, first + 1, ... hold exactly these units. REQUIRES: whole
  // blocks, all written.
  bool Equal(BlockId first, std::span<const CacheUnit> units) const;
  // Unit number `place` of a written block.
  CacheUnit At(BlockId block, int32_t place) const;
  // Reads units of a written block from `place` on until `out` is full. REQUIRES: the block has
  // that many.
  void Read(BlockId block, int32_t place, std::span<CacheUnit> out) const;

 private:
  size_t Offset(BlockId block) const { return static_cast<size_t>(block.value()) * block_size_; }
  void WriteBlock(BlockId block, std::span<const CacheUnit> units);
  bool EqualWide(BlockId block, std::span<const CacheUnit> units) const;

  const int32_t block_size_;
  const std::unique_ptr<uint32_t[]> lower_;
  const std::unique_ptr<uint32_t[]> upper_;   // valid for wide blocks only
  const std::unique_ptr<uint8_t[]> is_wide_;  // by block: 1 if any upper half is not zero
};

}  // namespace baton
