// The constants of kernels/NUMERICS.md that other code needs.
#pragma once

#include <cstdint>

namespace baton {

// Raised by any change that alters a bit of a result. Fingerprints name the numerics after it:
// "r1".
inline constexpr uint32_t kNumericsRevision = 1;

inline constexpr int kQuantGroup = 32;     // activations per int8 scale
inline constexpr int kAttentionTile = 64;  // slots; running maximum is updated once a tile
inline constexpr int kAttentionSegment =
    256;                                 // slots; segments are computed apart and merged in order
inline constexpr int kLanes = 16;        // accumulators of a Dot16
inline constexpr int kMaxHeadDim = 256;  // so that int8 attention cannot overflow, among others

}  // namespace baton
