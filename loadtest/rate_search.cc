#include "loadtest/rate_search.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace baton {

double ShareConfidence(int64_t requests, int64_t good, double share) {
  if (requests <= 0) return 0;
  const auto n = static_cast<double>(requests);
  const int64_t bad = requests - good;
  double probability = 0;
  for (int64_t k = 0; k <= bad; ++k) {
    const auto x = static_cast<double>(k);
    probability += std::exp(std::lgamma(n + 1) - std::lgamma(x + 1) - std::lgamma(n - x + 1) +
                            x * std::log1p(-share) + (n - x) * std::log(share));
  }
  return std::clamp(1 - probability, 0.0, 1.0);
}

RateSearch::RateSearch(double start, double lowest, double highest)
    : lowest_(lowest), highest_(highest), rate_(start) {
  CHECK(0 < lowest && lowest <= start && start <= highest);
}

std::optional<double> RateSearch::NextRate() const {
  return phase_ == Phase::kEnded ? std::nullopt : std::optional(rate_);
}

void RateSearch::EnterHalving() {
  const bool is_narrow = fails_ > 0 && fails_ / holds_ <= kRateResolution;
  phase_ = is_narrow ? Phase::kConfirm : Phase::kHalve;
  rate_ = is_narrow ? holds_ : std::sqrt(holds_ * fails_);
}

void RateSearch::OnStep(RateStep step) {
  CHECK(phase_ != Phase::kEnded);
  step.rate_per_s = rate_;
  step.is_confirmation = phase_ == Phase::kConfirm;
  steps_.push_back(step);
  if (!step.is_valid && ++late_runs_ < kMostLateRuns) return;
  const bool is_lost = late_runs_ == kMostLateRuns;
  if (is_lost && (lost_to_lateness_ == 0 || rate_ < lost_to_lateness_)) lost_to_lateness_ = rate_;
  late_runs_ = 0;
  const bool holds = step.holds();
  if (phase_ == Phase::kConfirm) {
    if (holds || rate_ <= lowest_) {
      phase_ = Phase::kEnded;
    } else {
      rate_ = std::max(lowest_, rate_ / kRateResolution);
    }
    return;
  }
  (holds ? holds_ : fails_) = rate_;
  if (phase_ == Phase::kHalve || (holds_ > 0 && fails_ > 0)) return EnterHalving();
  if (holds) {
    if (rate_ >= highest_) {
      phase_ = Phase::kConfirm;
    } else {
      rate_ = std::min(highest_, rate_ * 2);
    }
    return;
  }
  phase_ = rate_ <= lowest_ ? Phase::kEnded : Phase::kShrink;
  rate_ = std::max(lowest_, rate_ / 2);
}

std::optional<RateStep> RateSearch::result() const {
  if (phase_ != Phase::kEnded || steps_.empty()) return std::nullopt;
  const RateStep& last = steps_.back();
  return last.is_confirmation && last.holds() ? std::optional(last) : std::nullopt;
}

bool RateSearch::reached_highest() const {
  const std::optional<RateStep> found = result();
  return found && found->rate_per_s >= highest_;
}

}  // namespace baton
