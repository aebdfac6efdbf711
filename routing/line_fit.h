// A straight line y = intercept + slope·x through a stream of noisy measurements, the newer
// counting more: how long work takes against its size, when both drift.
//
// Weighted least squares with exponential forgetting. Three things keep it sane where plain least
// squares is not:
//  - A prior line, usable at once. The first observations pull away from it by factors rather than
//    by differences, since it may be wrong by orders of magnitude, and after a few it is forgotten.
//  - Where the x seen so far are too alike to tell a slope, the prior's shape (slope against
//    height) holds, scaled to the height that was measured.
//  - After the first few, an observation counts as at most `outlier` times what was expected, or as
//    little as one part in that: one stalled request does not move the line far.
//
// Invariants: At() does not fall with x, and lies within [floor, ceiling].
//
// Pure; not thread-safe: belongs to its host.
#pragma once

namespace baton {

struct LineFitOptions {
  double intercept = 0;  // the prior, >= 0
  double slope = 0;      // >= 0
  double typical_x =
      1;             // > 0: where the prior stands; a tenth of it is the least spread that counts
  double floor = 0;  // of At(), > 0
  double ceiling = 1e300;
  double prior_weight = 0.5;   // in observations: when so many were seen, both count alike
  double memory = 64;          // observations after which an old one counts 1/e
  double outlier = 4;          // > 1
  bool trusted_prior = false;  // outliers are measured by the prior from the first observation on
};

class LineFit {
 public:
  // REQUIRES: options as their comments say (CHECK).
  explicit LineFit(const LineFitOptions& options);

  // `weight`: in (0, 1], how much this one tells. Ignored: numbers that are not finite, x < 0,
  // y <= 0, weight <= 0.
  void Observe(double x, double y, double weight = 1);
  double At(double x) const;

  double observed() const { return observed_; }  // sum of weights, without forgetting

  // A new fit whose prior is this one's line: for a worker that joins a fleet. Once this one has
  // seen a few observations it takes a few to leave it: a worker's first request may be slow
  // because it is the first, and one that looked slow would not be asked again.
  LineFit AsPrior() const;

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
  double trust_ = 0;      // in the observations' line, against the prior: 0 to 1
  double intercept_ = 0;  // of the observations' line
  double slope_ = 0;
};

}  // namespace baton
