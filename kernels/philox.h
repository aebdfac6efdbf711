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

#include "kernels/host_device.h"

namespace baton {

namespace internal {

// Replaces the counter by random bits, and changes the key.
BATON_HOST_DEVICE inline void RunPhilox(uint32_t (&counter)[4], uint32_t (&key)[2]) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter[0] = static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0];
    counter[1] = static_cast<uint32_t>(product1);
    counter[2] = static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1];
    counter[3] = static_cast<uint32_t>(product0);
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
}

}  // namespace internal

inline std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                          std::array<uint32_t, 2> key) {
  uint32_t words[4] = {counter[0], counter[1], counter[2], counter[3]};
  uint32_t keys[2] = {key[0], key[1]};
  internal::RunPhilox(words, keys);
  return {words[0], words[1], words[2], words[3]};
}

// The inputs of one draw.
struct DrawKey {
  uint64_t seed = 0;      // of the request
  uint32_t sample = 0;    // index among the request's parallel samples
  uint64_t position = 0;  // of the drawn token, counted from the start of the prompt
};

BATON_HOST_DEVICE inline uint64_t RandomBits(const DrawKey& key) {
  uint32_t words[4] = {static_cast<uint32_t>(key.position),
                       static_cast<uint32_t>(key.position >> 32), key.sample, 0};
  uint32_t keys[2] = {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)};
  internal::RunPhilox(words, keys);
  return words[0] | uint64_t{words[1]} << 32;
}

}  // namespace baton
