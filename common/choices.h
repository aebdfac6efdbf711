// Several answers to one prompt: how many, and what each is.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

namespace baton {

// So many choices a request may ask for, from 1 on.
inline constexpr int32_t kMaxChoices = 16;

// Choice i of a request is, bit for bit, the answer of a request of its own with this seed. Modulo
// 2^64.
constexpr uint64_t SeedOfChoice(uint64_t seed, int32_t choice) {
  return seed + static_cast<uint64_t>(choice);
}

}  // namespace baton
