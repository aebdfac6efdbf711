// Median of repeated measurements, and its confidence interval.
//
// Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/check.h"

namespace baton {

// The interval [low, high] holds the median of the distribution with the probability `coverage`. It
// is the interval of the sign test: no assumption about the distribution.
struct MedianInterval {
  double median = 0;
  double low = 0;
  double high = 0;
  double coverage = 0;
};

// Returns the narrowest interval with a coverage of at least 95 %. Fewer than six values do not
// reach that; then the interval is from the least to the largest value. REQUIRES: not empty.
inline MedianInterval MedianOf(std::vector<double> values) {
  CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  // tail: probability that fewer than `rank` values are below the median.
  double term = 1;
  for (size_t i = 0; i < n; ++i) term /= 2;
  double tail = term;  // rank 1: no value is below
  size_t rank = 1;
  for (size_t next = 1; next < n / 2; ++next) {
    term = term * static_cast<double>(n - next + 1) / static_cast<double>(next);
    if (2 * (tail + term) > 0.05) break;
    tail += term;
    rank = next + 1;
  }
  return {.median = (values[(n - 1) / 2] + values[n / 2]) / 2,
          .low = values[rank - 1],
          .high = values[n - rank],
          .coverage = 1 - 2 * tail};
}

}  // namespace baton
