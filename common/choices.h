// Choices: several answers to one prompt.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

namespace baton {

// The most choices that one request may ask for. The least is 1.
inline constexpr int32_t kMaxChoices = 16;

// Returns the seed of choice i: seed + i modulo 2^64. The choice equals, bit for bit, the answer to
// a separate request with this seed.
constexpr uint64_t SeedOfChoice(uint64_t seed, int32_t choice) {
  return seed + static_cast<uint64_t>(choice);
}

}  // namespace baton
