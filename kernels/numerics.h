// Names of the numerics, and constants of kernels/NUMERICS.md and kernels/NUMERICS_T1.md that other
// code needs.
#pragma once

#include <cstdint>
#include <string_view>

namespace baton {

// The sets of rules. Results of different numerics differ, so their workers never pair.
enum class Numerics : uint8_t {
  kR1,      // kernels/NUMERICS.md
  kT1Sm80,  // kernels/NUMERICS_T1.md: tensor cores of compute capability 8.0
  kT1Sm90   // the same for tensor cores of compute capability 9.0
};
inline constexpr Numerics kAllNumerics[] = {Numerics::kR1, Numerics::kT1Sm80, Numerics::kT1Sm90};
// The name in settings and fingerprints. It changes with every change that alters a bit of a
// result.
constexpr std::string_view NumericsName(Numerics numerics) {
  switch (numerics) {
    case Numerics::kT1Sm80:
      return "t1-sm80";
    case Numerics::kT1Sm90:
      return "t1-sm90";
    case Numerics::kR1:
      break;
  }
  return "r1";
}
// Returns true for the numerics of NUMERICS_T1, which use tensor cores.
constexpr bool IsT1(Numerics numerics) { return numerics != Numerics::kR1; }
// Returns the compute capability whose tensor cores sum by the rules of `numerics`, 90 for 9.0.
// REQUIRES: IsT1(numerics).
constexpr int T1ComputeCapability(Numerics numerics) {
  return numerics == Numerics::kT1Sm80 ? 80 : 90;
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
