// Which backends may exchange KV and continue each other's answers.
//
// Numerics of one name promise equal bits. A backend keeps that promise to itself; for two
// different backends, a test must have compared them on the hardware first.
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

// Every pair here has a test that compares their bits. There is none yet: all workers are "cpu",
// whichever of its devices runs the steps.
inline constexpr std::array<BackendPair, 0> kConfirmedBackendPairs = {};

// Whether `a` and `b` are one backend or a confirmed pair, in either order.
inline bool IsConfirmedPair(std::string_view a, std::string_view b,
                            std::span<const BackendPair> confirmed = kConfirmedBackendPairs) {
  return a == b || std::any_of(confirmed.begin(), confirmed.end(), [&](const BackendPair& pair) {
           return (pair.one == a && pair.other == b) || (pair.one == b && pair.other == a);
         });
}

}  // namespace baton
