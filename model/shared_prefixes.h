// Finds rows of a step that share the KV of their first slots, so that attention may read it once
// (PagedAttentionArgs::shared_segments).
//
// Only adjacent chunks are compared. So the engine puts sequences with equal first blocks next to
// each other (engine/prefix_order.h).
//
// Pure. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/strong_int.h"
#include "kernels/numerics.h"

namespace baton {

// Slots of a group of segments. Prefixes are shared in multiples of it.
inline constexpr int32_t kSharedSlots = kT1GroupSegments * kAttentionSegment;

// A chunk of a step in one KV group.
struct ChunkPrefix {
  std::span<const BlockId> table;
  int32_t rows = 0;
  // Leading slots that all its rows see, with tile origin 0 and their own queries. 0: it cannot
  // share.
  int32_t slots = 0;
};

// Returns shared_segments of all rows, in order. The sets of rows that share are chosen so that as
// few slots as possible are read, without regard to the borders of a kernel's tiles.
std::vector<int32_t> SharedSegmentsOf(std::span<const ChunkPrefix> chunks, int32_t block_size);

}  // namespace baton
