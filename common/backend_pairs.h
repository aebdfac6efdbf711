// Decides which backends may exchange KV and continue each other's answers.
//
// Two workers with the same numerics name promise equal bits. A backend keeps that promise to
// itself. For two different backends, a test must have compared their bits on the hardware first.
//
// Thread safety: pure functions of constants.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

namespace baton {

struct BackendPair {
  std::string_view one;
  std::string_view other;
};

// Pairs that a test has compared bit for bit on the hardware. There is none yet: "cuda" has only
// run on the emulator.
inline constexpr std::array<BackendPair, 0> kConfirmedBackendPairs = {};

// Returns true if `a` and `b` are equal or a confirmed pair, in either order.
inline bool IsConfirmedPair(std::string_view a, std::string_view b,
                            std::span<const BackendPair> confirmed = kConfirmedBackendPairs) {
  return a == b || std::any_of(confirmed.begin(), confirmed.end(), [&](const BackendPair& pair) {
           return (pair.one == a && pair.other == b) || (pair.one == b && pair.other == a);
         });
}

}  // namespace baton
