// The units of cached blocks, by block id: what a RadixTree compares prompts with.
//
// A unit has 64 bits, but a token's upper half is zero. So lower and upper halves lie in two
// planes, and the upper one is read and written only for blocks that need it: a walk along a long
// prompt reads from memory half of what it compares. Blocks with consecutive ids lie side by side
// and are compared at once. Memory is touched as ids are used.
//
// Thread safety: belongs to the engine thread.
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

  // What these blocks hold from now on. REQUIRES: units.size() == blocks.size() * block_size.
  void Write(std::span<const BlockId> blocks, std::span<const CacheUnit> units);
  // Whether blocks `first`, first + 1, ... hold just these units. REQUIRES: whole blocks, all
  // written.
  bool Equal(BlockId first, std::span<const CacheUnit> units) const;
  // Unit `place` of a written block.
  CacheUnit At(BlockId block, int32_t place) const;
  // Units of a written block from `place` on, as many as `out` has room for. REQUIRES: it has them.
  void Read(BlockId block, int32_t place, std::span<CacheUnit> out) const;

 private:
  size_t Offset(BlockId block) const { return static_cast<size_t>(block.value()) * block_size_; }
  void WriteBlock(BlockId block, std::span<const CacheUnit> units);
  bool EqualWide(BlockId block, std::span<const CacheUnit> units) const;

  const int32_t block_size_;
  const std::unique_ptr<uint32_t[]> lower_;
  const std::unique_ptr<uint32_t[]> upper_;   // of wide blocks alone
  const std::unique_ptr<uint8_t[]> is_wide_;  // by block: whether any upper half is not zero
};

}  // namespace baton
