#include "routing/line_fit.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace baton {
namespace {

constexpr double kTrustedObservations = 4;  // before, an outlier may as well be the truth

}  // namespace

LineFit::LineFit(const LineFitOptions& options)
    : options_(options),
      weight_(options.prior_weight),
      mean_x_(options.typical_x),
      mean_y_(options.intercept + options.slope * options.typical_x),
      intercept_(options.intercept),
      slope_(options.slope) {
  CHECK(options.intercept >= 0 && options.slope >= 0 && options.typical_x > 0);
  CHECK(options.floor > 0 && options.ceiling >= options.floor);
  CHECK(options.prior_weight > 0 && options.memory >= 1 && options.outlier > 1);
}

void LineFit::Observe(double x, double y, double weight) {
  if (!std::isfinite(x) || !std::isfinite(y) || x < 0 || y <= 0 || !(weight > 0)) return;
  weight = std::min(weight, 1.0);
  y = std::clamp(y, options_.floor, options_.ceiling);
  if (observed_ >= kTrustedObservations) {
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
  const double prior_height = options_.intercept + options_.slope * mean_x_;
  const double prior_slope = prior_height > 0 ? mean_y_ * options_.slope / prior_height : 0;
  const double least_spread = options_.typical_x / 10;
  const double ridge = least_spread * least_spread;
  slope_ = (covariance_ + ridge * prior_slope) / (variance_ + ridge);
  const double steepest = mean_x_ > 0 ? mean_y_ / mean_x_ : 0;  // the line through the origin
  slope_ = std::clamp(slope_, 0.0, steepest);
  intercept_ = std::max(0.0, mean_y_ - slope_ * mean_x_);
}

double LineFit::At(double x) const {
  return std::clamp(intercept_ + slope_ * x, options_.floor, options_.ceiling);
}

LineFit LineFit::AsPrior() const {
  LineFitOptions options = options_;
  options.intercept = intercept_;
  options.slope = slope_;
  return LineFit(options);
}

}  // namespace baton
