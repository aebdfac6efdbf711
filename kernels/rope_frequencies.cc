#include "kernels/rope_frequencies.h"

#include <cmath>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "kernels/exact_math.h"

namespace baton {
namespace {

constexpr int kMaxDim = 65536;
constexpr double kTwoPi = 6.283185307179586476925286766559;

absl::Status CheckPositive(std::string_view field, double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("rope %s is %g, it must be finite and above 0", field, value));
}

absl::Status CheckSpec(const RopeFrequenciesSpec& spec) {
  if (spec.dim < 2 || spec.dim > kMaxDim || spec.dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rope dim is %d, it must be even and in 2 to %d", spec.dim, kMaxDim));
  }
  RETURN_IF_ERROR(CheckPositive("base", spec.base));
  if (spec.scaling != RopeScaling::kNone) RETURN_IF_ERROR(CheckPositive("factor", spec.factor));
  if (spec.scaling == RopeScaling::kLlama3) {
    RETURN_IF_ERROR(CheckPositive("low_freq_factor", spec.low_freq_factor));
    RETURN_IF_ERROR(CheckPositive("high_freq_factor", spec.high_freq_factor));
    RETURN_IF_ERROR(CheckPositive("original_context", spec.original_context));
    if (spec.high_freq_factor <= spec.low_freq_factor) {
      return absl::InvalidArgumentError(
          absl::StrFormat("rope high_freq_factor is %g, it must be above low_freq_factor %g",
                          spec.high_freq_factor, spec.low_freq_factor));
    }
  }
  if (!spec.divisors.empty() && spec.divisors.size() != spec.dim / 2) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rope_freqs has %d values, a rope dim of %d needs %d", spec.divisors.size(),
                        spec.dim, spec.dim / 2));
  }
  for (const float divisor : spec.divisors) RETURN_IF_ERROR(CheckPositive("rope_freqs", divisor));
  return absl::OkStatus();
}

// Divides frequencies of wavelengths above original_context / low_freq_factor by `factor`. Keeps
// those of wavelengths below original_context / high_freq_factor. Blends those in between.
double ScaleLlama3(const RopeFrequenciesSpec& spec, double frequency) {
  const double wavelength = kTwoPi / frequency;
  if (wavelength < spec.original_context / spec.high_freq_factor) return frequency;
  if (wavelength > spec.original_context / spec.low_freq_factor) return frequency / spec.factor;
  const double kept = (spec.original_context / wavelength - spec.low_freq_factor) /
                      (spec.high_freq_factor - spec.low_freq_factor);
  return (1 - kept) * (frequency / spec.factor) + kept * frequency;
}

}  // namespace

absl::StatusOr<std::vector<double>> RopeFrequencies(const RopeFrequenciesSpec& spec) {
  RETURN_IF_ERROR(CheckSpec(spec));
  const double log_base = ExactLog(spec.base);
  std::vector<double> frequencies(spec.dim / 2);
  for (int i = 0; i < spec.dim / 2; ++i) {
    double frequency = ExactExp(-((2.0 * i / spec.dim) * log_base));
    if (spec.scaling == RopeScaling::kLinear) frequency /= spec.factor;
    if (spec.scaling == RopeScaling::kLlama3) frequency = ScaleLlama3(spec, frequency);
    if (!spec.divisors.empty()) frequency /= static_cast<double>(spec.divisors[i]);
    frequencies[i] = frequency;
  }
  return frequencies;
}

}  // namespace baton
