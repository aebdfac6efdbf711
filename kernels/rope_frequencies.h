// The rotation frequencies of rotary positions (RoFormer, arXiv 2104.09864) with the scalings that
// GGUF's llama architecture knows; NUMERICS §6. Computed once per model, in binary64, with
// kernels/exact_math.h, so that every worker has the same bits.
//
// Pure function, safe from any thread. The spec comes from a model file and is not trusted.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

enum class RopeScaling { kNone, kLinear, kLlama3 };

struct RopeFrequenciesSpec {
  int dim = 0;            // values of a head that rotate; even
  double base = 10000.0;  // GGUF rope.freq_base
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;            // kLinear and kLlama3: how many times longer the context became
  double low_freq_factor = 1.0;   // kLlama3
  double high_freq_factor = 4.0;  // kLlama3
  double original_context = 8192.0;  // kLlama3, tokens
  // The file's rope_freqs tensor: each frequency is divided by its factor. Empty: none.
  std::span<const float> divisors = {};  // [dim / 2]
};

// Radians per position, [dim / 2], falling. InvalidArgument names the field and its value: dim odd
// or not in 2…65,536, a value that is not finite and positive, high_freq_factor not above
// low_freq_factor, divisors of another length.
absl::StatusOr<std::vector<double>> RopeFrequencies(const RopeFrequenciesSpec& spec);

}  // namespace baton
