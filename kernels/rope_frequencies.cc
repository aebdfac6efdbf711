#include "kernels/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "kernels/exact_math.h"

namespace baton {
namespace {

constexpr int kMaxDim = 65536;
constexpr double kMostAttentionFactor = 100;  // scores grow by its square
constexpr double kTwoPi = 6.283185307179586476925286766559;

absl::Status CheckPositive(std::string_view field, double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("rope %s is %g, it must be finite and above 0", field, value));
}

absl::Status CheckYarn(const RopeFrequenciesSpec& spec) {
  RETURN_IF_ERROR(CheckPositive("original_context", spec.original_context));
  RETURN_IF_ERROR(CheckPositive("beta_fast", spec.beta_fast));
  RETURN_IF_ERROR(CheckPositive("beta_slow", spec.beta_slow));
  if (spec.beta_fast <= spec.beta_slow) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "rope beta_fast is %g, it must be above beta_slow %g", spec.beta_fast, spec.beta_slow));
  }
  if (spec.base <= 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rope base is %g, YaRN scaling needs a base above 1", spec.base));
  }
  if (!std::isfinite(spec.log_multiplier) || spec.log_multiplier < 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "rope log_multiplier is %g, it must be finite and not negative", spec.log_multiplier));
  }
  return absl::OkStatus();
}

absl::Status CheckSpec(const RopeFrequenciesSpec& spec) {
  if (spec.dim < 2 || spec.dim > kMaxDim || spec.dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rope dim is %d, it must be even and in 2 to %d", spec.dim, kMaxDim));
  }
  RETURN_IF_ERROR(CheckPositive("base", spec.base));
  RETURN_IF_ERROR(CheckPositive("attention_factor", spec.attention_factor));
  if (spec.attention_factor > kMostAttentionFactor) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rope attention_factor is %g, it must be at most %g", spec.attention_factor,
                        kMostAttentionFactor));
  }
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
  if (spec.scaling == RopeScaling::kNtk && spec.dim == 2) {
    return absl::InvalidArgumentError("rope dim is 2, NTK scaling needs at least 4");
  }
  if (spec.scaling == RopeScaling::kYarn) RETURN_IF_ERROR(CheckYarn(spec));
  if (!spec.divisors.empty() && spec.divisors.size() != spec.dim / 2) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rope_freqs has %d values, a rope dim of %d needs %d", spec.divisors.size(),
                        spec.dim, spec.dim / 2));
  }
  for (const float divisor : spec.divisors) RETURN_IF_ERROR(CheckPositive("rope_freqs", divisor));
  return absl::OkStatus();
}

// Returns `kept` parts of `frequency` and 1 − kept parts of `frequency` / factor.
double Blend(const RopeFrequenciesSpec& spec, double frequency, double kept) {
  return (1 - kept) * (frequency / spec.factor) + kept * frequency;
}

// Divides frequencies of wavelengths above original_context / low_freq_factor by `factor`. Keeps
// those of wavelengths below original_context / high_freq_factor. Blends those in between.
double ScaleLlama3(const RopeFrequenciesSpec& spec, double frequency) {
  const double wavelength = kTwoPi / frequency;
  if (wavelength < spec.original_context / spec.high_freq_factor) return frequency;
  if (wavelength > spec.original_context / spec.low_freq_factor) return frequency / spec.factor;
  const double kept = (spec.original_context / wavelength - spec.low_freq_factor) /
                      (spec.high_freq_factor - spec.low_freq_factor);
  return Blend(spec, frequency, kept);
}

// Returns which pair, as a fraction, turns `turns` times in the original context.
double PairThatTurns(const RopeFrequenciesSpec& spec, double turns) {
  return spec.dim * ExactLog(spec.original_context / (turns * kTwoPi)) / (2 * ExactLog(spec.base));
}

// Returns the part of its frequency that each pair keeps: 1 for fast pairs, 0 for slow ones, and a
// straight line in between.
class YarnRamp {
 public:
  explicit YarnRamp(const RopeFrequenciesSpec& spec)
      : first_(std::max(0.0, std::floor(PairThatTurns(spec, spec.beta_fast)))),
        last_(std::min(spec.dim - 1.0, std::ceil(PairThatTurns(spec, spec.beta_slow)))) {}

  double Kept(int pair) const {
    return 1 - std::clamp((pair - first_) / std::max(0.001, last_ - first_), 0.0, 1.0);
  }

 private:
  double first_;
  double last_;
};

}  // namespace

absl::StatusOr<std::vector<double>> RopeFrequencies(const RopeFrequenciesSpec& spec) {
  RETURN_IF_ERROR(CheckSpec(spec));
  double log_base = ExactLog(spec.base);
  if (spec.scaling == RopeScaling::kNtk) {  // the slowest pair is divided by the factor
    log_base += spec.dim / (spec.dim - 2.0) * ExactLog(spec.factor);
  }
  std::optional<YarnRamp> yarn;
  if (spec.scaling == RopeScaling::kYarn) yarn.emplace(spec);
  std::vector<double> frequencies(spec.dim / 2);
  for (int i = 0; i < spec.dim / 2; ++i) {
    double frequency = ExactExp(-((2.0 * i / spec.dim) * log_base));
    if (spec.scaling == RopeScaling::kLinear) frequency /= spec.factor;
    if (spec.scaling == RopeScaling::kLlama3) frequency = ScaleLlama3(spec, frequency);
    if (yarn.has_value()) frequency = Blend(spec, frequency, yarn->Kept(i));
    if (!spec.divisors.empty()) frequency /= static_cast<double>(spec.divisors[i]);
    frequencies[i] = frequency;
  }
  return frequencies;
}

double RopeAttentionFactor(const RopeFrequenciesSpec& spec) {
  if (spec.scaling != RopeScaling::kYarn || spec.factor <= 1) return spec.attention_factor;
  const double log_factor = 0.1 * ExactLog(spec.factor);
  return spec.attention_factor * (1 + log_factor) / (1 + spec.log_multiplier * log_factor);
}

}  // namespace baton
