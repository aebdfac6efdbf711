// What a chunk of a step may say about its tokens beside their ids: where they stand, and which
// slots of their sequence they see.
#pragma once

#include <array>
#include <cstdint>

namespace baton {

// Position of a token: time, height and width (M-RoPE). Text has three equal components.
using RowPosition = std::array<int32_t, 3>;

// Slots [begin, end) of a sequence, all of which a token sees (kernels/NUMERICS.md §8).
struct SlotRun {
  int32_t begin = 0;
  int32_t end = 0;
  // The slot from which attention tiles are counted, at most `begin`. A run that is stored again
  // elsewhere keeps its bits when begin - tile_origin stays.
  int32_t tile_origin = 0;
  // The keys of the run count as standing so many positions further on, in every component. A key
  // that was computed at position p and now stands at p + d has shift d.
  int32_t position_shift = 0;
};

}  // namespace baton
