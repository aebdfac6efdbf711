// Stateless random numbers: a hash of the request's seed, the sample and the token position.
//
// The algorithm is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as
// 1, 2, 3", SC 2011). The result depends on the key and the counter alone. So a sequence draws the
// same numbers after it moves to another worker, is preempted or is replayed.
//
// Thread safety: pure functions.
#pragma once

#include <array>
#include <cstdint>

namespace baton {

inline std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                          std::array<uint32_t, 2> key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// The inputs of one draw.
struct DrawKey {
  uint64_t seed = 0;      // of the request
  uint32_t sample = 0;    // index among the request's parallel samples
  uint64_t position = 0;  // of the drawn token, counted from the start of the prompt
};

inline uint64_t RandomBits(const DrawKey& key) {
  const std::array<uint32_t, 4> random =
      Philox4x32({static_cast<uint32_t>(key.position), static_cast<uint32_t>(key.position >> 32),
                  key.sample, 0},
                 {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
  return random[0] | uint64_t{random[1]} << 32;
}

}  // namespace baton
