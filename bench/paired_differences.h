// Mean of paired values, and the 95 % interval of the mean difference between two series.
//
// Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "common/check.h"

namespace baton {

inline double MeanOf(const std::vector<double>& values) {
  CHECK(!values.empty());
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

struct MeanInterval {
  double mean = 0;
  double low = 0;
  double high = 0;
};

// The bootstrap's percentile interval: entries are drawn anew, with replacement. One entry gives an
// interval of length 0, which says nothing. REQUIRES: not empty.
inline MeanInterval MeanIntervalOf(const std::vector<double>& values, uint64_t seed) {
  constexpr size_t kDraws = 2000;
  std::mt19937_64 random(seed);
  std::vector<double> means;
  for (size_t draw = 0; draw < kDraws; ++draw) {
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      sum += values[static_cast<size_t>(random() % values.size())];
    }
    means.push_back(sum / static_cast<double>(values.size()));
  }
  std::sort(means.begin(), means.end());
  return {
      .mean = MeanOf(values), .low = means[kDraws / 40], .high = means[kDraws - 1 - kDraws / 40]};
}

// Interval of the mean of a[i] - b[i]. REQUIRES: equal lengths, not empty.
inline MeanInterval DifferenceOf(const std::vector<double>& a, const std::vector<double>& b,
                                 uint64_t seed) {
  CHECK_EQ(a.size(), b.size());
  std::vector<double> differences;
  for (size_t i = 0; i < a.size(); ++i) differences.push_back(a[i] - b[i]);
  return MeanIntervalOf(differences, seed);
}

}  // namespace baton
