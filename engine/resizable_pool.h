// Interface to the memory of a KV pool that grows and shrinks, as PoolResizer needs it.
//
// The pool reserves the address range of its largest size at the start. Memory is added and
// returned by block. Only Discard returns memory. So memory that the engine thread found populated
// stays populated until the engine thread discards it (docs/decisions/0022-memory-of-a-pool.md).
//
// Thread safety: Discard on the engine thread only; the rest on any thread. A range must not be
// populated during its Discard.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "cache/block_counts.h"

namespace baton {

class ResizablePool {
 public:
  virtual ~ResizablePool() = default;

  virtual bool resizable() const = 0;
  // Number of blocks of a KV group that fit in the reserved address range.
  virtual int32_t max_blocks(int32_t group) const = 0;
  // Blocks of every group when group 0 has `full`. REQUIRES: full <= max_blocks(0).
  virtual BlockCounts BlocksFor(int32_t full) const = 0;
  // Populates the memory of the first blocks of every group, before the groups grow to `blocks`.
  // Memory that is populated already keeps its contents and is not counted. ResourceExhausted,
  // with both figures: the device has less memory. Then a part of the missing memory may be
  // populated.
  virtual absl::Status Populate(const BlockCounts& blocks) const = 0;
  // Returns the memory of a group's blocks [begin, end) to the system. REQUIRES: resizable();
  // nothing reads or writes these blocks.
  virtual void Discard(int32_t group, int32_t begin, int32_t end) = 0;
};

}  // namespace baton
