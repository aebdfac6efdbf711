// Random numbers of a load test. The same seed gives the same numbers with every compiler and
// library: the standard's distributions do not promise that.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace baton {

// Spreads every bit of `value` over all bits of the result (the finaliser of SplitMix64).
inline uint64_t MixBits(uint64_t value) {
  value += 0x9E3779B97F4A7C15;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

class SeededRandom {
 public:
  explicit SeededRandom(uint64_t seed) : state_(MixBits(seed)) {}

  uint64_t Next() { return MixBits(state_++); }
  // In the open interval (0, 1).
  double Uniform() { return (static_cast<double>(Next() >> 11) + 0.5) * 0x1.0p-53; }
  // A whole number below `bound`. REQUIRES: bound > 0. The bias is below bound / 2^64.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  double Exponential(double mean) { return -mean * std::log(Uniform()); }
  double Normal() {
    return std::sqrt(-2 * std::log(Uniform())) * std::cos(2 * std::numbers::pi * Uniform());
  }
  // Gamma distribution with this shape and mean. REQUIRES: shape > 0. Algorithm: Marsaglia and
  // Tsang, "A simple method for generating gamma variables", 2000.
  double Gamma(double shape, double mean) {
    const double boost = shape < 1 ? std::pow(Uniform(), 1 / shape) : 1;
    const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3;
    const double c = 1 / std::sqrt(9 * d);
    while (true) {
      const double x = Normal();
      const double v = (1 + c * x) * (1 + c * x) * (1 + c * x);
      if (v > 0 && std::log(Uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) {
        return d * v * boost * mean / shape;
      }
    }
  }

 private:
  uint64_t state_;
};

}  // namespace baton
