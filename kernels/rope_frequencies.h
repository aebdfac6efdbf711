// Computes the rotation frequencies of rotary positions (RoFormer, arXiv 2104.09864), with the
// scalings of GGUF's llama architecture (NUMERICS §6). They are computed once per model, in
// binary64 with kernels/exact_math.h, so every worker has the same bits.
//
// Thread safety: pure function, safe from any thread. The spec comes from a model file and is not
// trusted.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

enum class RopeScaling { kNone, kLinear, kLlama3 };

struct RopeFrequenciesSpec {
  int dim = 0;            // values of a head that rotate; must be even
  double base = 10000.0;  // GGUF rope.freq_base
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;            // kLinear and kLlama3: factor by which the context was extended
  double low_freq_factor = 1.0;   // kLlama3
  double high_freq_factor = 4.0;  // kLlama3
  double original_context = 8192.0;  // kLlama3, tokens
  // The file's rope_freqs tensor: frequency i is divided by divisors[i]. Empty: no division.
  std::span<const float> divisors = {};  // [dim / 2]
};

// Returns [dim / 2] frequencies in radians per position, decreasing. InvalidArgument names the
// field and its value:
// - `dim` is odd or not in 2…65,536;
// - a value is not finite or not positive;
// - high_freq_factor is not above low_freq_factor;
// - `divisors` has another length than dim / 2.
absl::StatusOr<std::vector<double>> RopeFrequencies(const RopeFrequenciesSpec& spec);

}  // namespace baton
