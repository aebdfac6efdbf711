// Names of the numerics, and constants of kernels/NUMERICS.md and kernels/NUMERICS_T1.md that other
// code needs.
#pragma once

#include <cstdint>
#include <string_view>

namespace baton {

// The sets of rules. Results of different numerics differ, so their workers never pair.
enum class Numerics : uint8_t {
  kR1,     // kernels/NUMERICS.md
  kT1Sm90  // kernels/NUMERICS_T1.md: tensor cores of compute capability 9.0
};
// The name in settings and fingerprints. It changes with every change that alters a bit of a
// result.
constexpr std::string_view NumericsName(Numerics numerics) {
  return numerics == Numerics::kR1 ? "r1" : "t1-sm90";
}

inline constexpr int kQuantGroup = 32;         // activations per int8 scale
inline constexpr int kAttentionTile = 64;      // slots; the running maximum is updated once a tile
inline constexpr int kAttentionSegment = 256;  // slots; computed separately, merged in order
inline constexpr int kLanes = 16;              // accumulators of Dot16
inline constexpr int kMaxHeadDim = 256;        // bounds int8 attention's int32 sums, among others

// NUMERICS_T1 §5.
inline constexpr int kT1GroupSegments = 8;  // merged before the groups are
inline constexpr int kT1Slack = 8;          // how far weights may exceed 1, as a power of two
inline constexpr int kT1F16Bias = 7;        // references of f16 pools are lower by this
inline constexpr int kT1Floor = 100;        // weights are at least 2^-kT1Floor

}  // namespace baton
