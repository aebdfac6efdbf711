// Constants of kernels/NUMERICS.md that other code needs.
#pragma once

#include <cstdint>

namespace baton {

// Increases with every change that alters a bit of a result. Fingerprints contain it, as "r1".
inline constexpr uint32_t kNumericsRevision = 1;

inline constexpr int kQuantGroup = 32;         // activations per int8 scale
inline constexpr int kAttentionTile = 64;      // slots; the running maximum is updated once a tile
inline constexpr int kAttentionSegment = 256;  // slots; computed separately, merged in order
inline constexpr int kLanes = 16;              // accumulators of Dot16
inline constexpr int kMaxHeadDim = 256;        // bounds int8 attention's int32 sums, among others

}  // namespace baton
