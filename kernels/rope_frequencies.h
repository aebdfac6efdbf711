// Computes the rotation frequencies of rotary positions (RoFormer, arXiv 2104.09864), with the
// scalings of GGUF's llama architecture (NUMERICS §6): YaRN (arXiv 2309.00071), and what it calls
// "NTK-aware". They are computed once per model, in binary64 with kernels/exact_math.h, so every
// worker has the same bits. No scaling here depends on the length of a sequence. So keys that are
// stored at one position can be read as if they were at another.
//
// Thread safety: pure function, safe from any thread. The spec comes from a model file and is not
// trusted.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

enum class RopeScaling { kNone, kLinear, kLlama3, kNtk, kYarn };

struct RopeFrequenciesSpec {
  int dim = 0;            // values of a head that rotate; must be even
  double base = 10000.0;  // GGUF rope.freq_base
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;               // all scalings: factor by which the context was extended
  double low_freq_factor = 1.0;      // kLlama3
  double high_freq_factor = 4.0;     // kLlama3
  double original_context = 8192.0;  // kLlama3 and kYarn, tokens
  // kYarn: pairs that turn more than beta_fast times in the original context keep their frequency,
  // those that turn less than beta_slow times are divided by `factor`.
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double log_multiplier = 0.0;  // kYarn: weight of ln(factor) in the divisor of RopeAttentionFactor
  double attention_factor = 1.0;  // all scalings: multiplies RopeAttentionFactor. At most 100
  // The file's rope_freqs tensor: frequency i is divided by divisors[i]. Empty: no division.
  std::span<const float> divisors = {};  // [dim / 2]
};

// Returns [dim / 2] frequencies in radians per position, decreasing. InvalidArgument names the
// field and its value:
// - `dim` is odd or not in 2…65,536, or 2 with kNtk;
// - a value is not finite or not positive (log_multiplier may be 0);
// - attention_factor is above 100;
// - `base` is not above 1 with kYarn;
// - high_freq_factor is not above low_freq_factor, or beta_fast not above beta_slow;
// - `divisors` has another length than dim / 2.
absl::StatusOr<std::vector<double>> RopeFrequencies(const RopeFrequenciesSpec& spec);

// Returns the number by which sines and cosines are multiplied. So scores of rotated values grow
// by its square. It is attention_factor, with kYarn and a factor above 1 times
// (1 + 0.1 ln factor) / (1 + 0.1 log_multiplier · ln factor).
// REQUIRES: RopeFrequencies(spec) is OK.
double RopeAttentionFactor(const RopeFrequenciesSpec& spec);

}  // namespace baton
