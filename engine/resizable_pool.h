// The memory behind a KV cache that grows and shrinks: what PoolResizer needs of it.
//
// A pool has the address range of its largest size from the beginning; memory comes and goes by
// block.
//
// Thread safety: Discard belongs to the engine thread; the rest may be called from any.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "cache/block_counts.h"

namespace baton {

class ResizablePool {
 public:
  virtual ~ResizablePool() = default;

  virtual bool resizable() const = 0;
  // The blocks that the address range has for a group of the cache.
  virtual int32_t max_blocks(int32_t group) const = 0;
  // Of every group, when group 0 has `full`. REQUIRES: full <= max_blocks(0).
  virtual BlockCounts BlocksFor(int32_t full) const = 0;
  // Before the groups of the cache grow from `begin` blocks to `end`: ResourceExhausted, with both
  // figures, when there is less memory to give. What is in them stays. REQUIRES: begin <= end in
  // every group.
  virtual absl::Status Populate(const BlockCounts& begin, const BlockCounts& end) const = 0;
  // Gives the memory of a group's blocks [begin, end) back. REQUIRES: resizable(); nothing reads or
  // writes them.
  virtual void Discard(int32_t group, int32_t begin, int32_t end) = 0;
};

}  // namespace baton
