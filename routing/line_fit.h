// Fits a line y = intercept + slope·x to a stream of noisy measurements. Newer measurements count
// more. It models the time of work against its size, when both drift.
//
// Weighted least squares with exponential forgetting. Three additions make it robust:
//  - A prior line, usable at once. It may be wrong by orders of magnitude. So the first
//    observations pull the result away from it by factors instead of differences. After a few
//    observations it is forgotten.
//  - If the x values are too similar to determine a slope, the prior's shape (slope relative to
//    height) is used, scaled to the measured height.
//  - After the first few, an observation is clamped to [expected / outlier, expected * outlier]. So
//    one stalled request does not move the line far.
//
// Invariants: At() does not decrease with x, and lies within [floor, ceiling].
//
// Pure. Not thread-safe.
#pragma once

namespace baton {

struct LineFitOptions {
  double intercept = 0;  // of the prior, >= 0
  double slope = 0;      // of the prior, >= 0
  // > 0: x of the prior's typical measurement. A tenth of it is the least spread that counts.
  double typical_x = 1;
  double floor = 0;  // lower bound of At(), > 0
  double ceiling = 1e300;
  double prior_weight = 0.5;   // observations until prior and data count equally
  double memory = 64;          // observations after which an old one counts 1/e
  double outlier = 4;          // > 1
  bool trusted_prior = false;  // clamp outliers around the prior from the first observation on
};

class LineFit {
 public:
  // REQUIRES: options satisfy their comments (CHECK).
  explicit LineFit(const LineFitOptions& options);

  // `weight`, in (0, 1], is the reliability of this observation. Ignores non-finite numbers, x < 0,
  // y <= 0 and weight <= 0.
  void Observe(double x, double y, double weight = 1);
  double At(double x) const;

  double observed() const { return observed_; }  // sum of weights, without forgetting

  // Takes the line of `fleet` as the prior, in place of the present one. If that fit has a few
  // observations, this one needs some to leave the prior: a few if it has none, else one. A
  // worker's first request may be slow because it is the first, and a worker that looks slow would
  // get no further requests.
  void SetPrior(const LineFit& fleet);

 private:
  void Solve();
  double PriorAt(double x) const { return options_.intercept + options_.slope * x; }

  LineFitOptions options_;
  double weight_ = 0;
  double mean_x_ = 0;
  double mean_y_ = 0;
  double variance_ = 0;    // of x
  double covariance_ = 0;  // of x and y
  double observed_ = 0;
  double trust_ = 0;      // weight of the fitted line against the prior, 0 to 1
  double intercept_ = 0;  // of the fitted line
  double slope_ = 0;
};

}  // namespace baton
