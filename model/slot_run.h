// Optional attributes of a chunk's tokens: their positions, and the slots of their sequence that
// they see.
//
// Thread safety: plain data.
#pragma once

#include <array>
#include <cstdint>

namespace baton {

// Position of a token: time, height and width (M-RoPE). The three components of text are equal.
using RowPosition = std::array<int32_t, 3>;

// Slots [begin, end) of a sequence. A token sees all of them (kernels/NUMERICS.md §8).
struct SlotRun {
  int32_t begin = 0;
  int32_t end = 0;
  // Attention tiles are counted from this slot. REQUIRES: tile_origin <= begin. A run that is
  // stored again elsewhere gives the same bits if begin - tile_origin is the same.
  int32_t tile_origin = 0;
  // The run's keys count as if they stood this number of positions further on, in every component.
  // A key computed at position p that now stands at p + d has shift d.
  int32_t position_shift = 0;
};

// Place of a row that does not follow the row before it.
struct RowPlace {
  int32_t slot = 0;  // that its KV is written to
  int32_t run = 0;   // the run that has the slot, an index into the chunk's runs
};

}  // namespace baton
