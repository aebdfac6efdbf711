#include "routing/line_fit.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace baton {
namespace {

constexpr double kTrustedObservations = 4;  // before that, an outlier may be the true value
constexpr double kFullTrust = 0.998;

}  // namespace

LineFit::LineFit(const LineFitOptions& options) : options_(options) {
  CHECK(options.intercept >= 0 && options.slope >= 0 && options.typical_x > 0);
  CHECK(options.floor > 0 && options.ceiling >= options.floor);
  CHECK(options.prior_weight > 0 && options.memory >= 1 && options.outlier > 1);
}

void LineFit::Observe(double x, double y, double weight) {
  if (!std::isfinite(x) || !std::isfinite(y) || x < 0 || y <= 0 || !(weight > 0)) return;
  weight = std::min(weight, 1.0);
  y = std::clamp(y, options_.floor, options_.ceiling);
  if (options_.trusted_prior || observed_ >= kTrustedObservations) {
    const double expected = At(x);
    y = std::clamp(y, expected / options_.outlier, expected * options_.outlier);
  }
  observed_ += weight;
  weight_ = weight_ * std::exp(-weight / options_.memory) + weight;
  const double share = weight / weight_;
  const double dx = x - mean_x_;
  const double dy = y - mean_y_;
  mean_x_ += share * dx;
  mean_y_ += share * dy;
  variance_ = (1 - share) * (variance_ + share * dx * dx);
  covariance_ = (1 - share) * (covariance_ + share * dx * dy);
  Solve();
}

void LineFit::Solve() {
  const double prior_height = PriorAt(mean_x_);
  const double prior_slope = prior_height > 0 ? mean_y_ * options_.slope / prior_height : 0;
  const double least_spread = options_.typical_x / 10;
  const double ridge = least_spread * least_spread;
  slope_ = (covariance_ + ridge * prior_slope) / (variance_ + ridge);
  const double steepest = mean_x_ > 0 ? mean_y_ / mean_x_ : 0;  // line through the origin
  slope_ = std::clamp(slope_, 0.0, steepest);
  intercept_ = std::max(0.0, mean_y_ - slope_ * mean_x_);
  const double odds = observed_ / options_.prior_weight;
  trust_ = odds * odds / (1 + odds * odds);
  if (trust_ > kFullTrust) trust_ = 1;
}

double LineFit::At(double x) const {
  const auto bounded = [this](double y) { return std::clamp(y, options_.floor, options_.ceiling); };
  if (trust_ == 0) return bounded(PriorAt(x));
  const double y = bounded(intercept_ + slope_ * x);
  if (trust_ == 1) return y;
  return bounded(y * std::pow(bounded(PriorAt(x)) / y, 1 - trust_));
}

void LineFit::SetPrior(const LineFit& fleet) {
  const double typical_x = options_.typical_x;
  options_.intercept = fleet.At(0);
  options_.slope = std::max(0.0, (fleet.At(typical_x) - fleet.At(0)) / typical_x);
  if (fleet.observed_ >= kTrustedObservations) {
    options_.trusted_prior = true;
    const double weight = observed_ == 0 ? kTrustedObservations : 1;
    options_.prior_weight = std::max(options_.prior_weight, weight);
  }
  if (observed_ > 0) Solve();
}

}  // namespace baton
