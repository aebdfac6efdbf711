// Random numbers of a simulation: one seed with many named, independent streams. More draws from
// one stream do not change the others. A change to one part of the simulation therefore does not
// reshuffle the rest.
//
// The generator is SplitMix64 (Steele, Lea, Flood 2014).
#pragma once

#include <cstdint>
#include <string_view>

namespace baton {

// Mixes 64 bits (the finalizer of SplitMix64).
inline uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

class SimRandom {
 public:
  SimRandom(uint64_t seed, std::string_view stream)
      : state_(MixBits(seed + 0x9E3779B97F4A7C15ull)) {
    for (const char c : stream) state_ = MixBits(state_ ^ static_cast<unsigned char>(c));
  }

  uint64_t Bits() { return MixBits(state_ += 0x9E3779B97F4A7C15ull); }
  // REQUIRES: below >= 1.
  uint64_t Below(uint64_t below) { return Bits() % below; }
  // Both ends included.
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Below(static_cast<uint64_t>(high - low + 1)));
  }
  bool OneIn(uint64_t n) { return Below(n) == 0; }

 private:
  uint64_t state_;
};

}  // namespace baton
