// Exact quantiles of all values: no histogram, no sampling.
//
// Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "common/check.h"

namespace baton {

// Returns the index of the quantile `q` among `count` sorted values: the least value with at least
// the share `q` of all values at or below it (nearest rank). REQUIRES: count > 0, 0 < q <= 1.
inline size_t QuantileIndex(size_t count, double q) {
  CHECK_GT(count, 0);
  // A product such as 0.07 * 100 can be a little above the whole number.
  const double rank = std::ceil(q * static_cast<double>(count) - 1e-9);
  return static_cast<size_t>(std::clamp(rank, 1.0, static_cast<double>(count))) - 1;
}

// Reorders `values`. REQUIRES: not empty, 0 < q <= 1.
inline double QuantileOf(std::vector<double>& values, double q) {
  const auto at = values.begin() + static_cast<ptrdiff_t>(QuantileIndex(values.size(), q));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

struct Distribution {
  int64_t count = 0;  // 0: the others are meaningless
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p95 = 0;
  double p99 = 0;
  double max = 0;
};

// Sorts `values`.
inline Distribution DistributionOf(std::vector<double>& values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&values](double q) { return values[QuantileIndex(values.size(), q)]; };
  return {.count = static_cast<int64_t>(values.size()),
          .mean = std::accumulate(values.begin(), values.end(), 0.0) /
                  static_cast<double>(values.size()),
          .p50 = at(0.5),
          .p90 = at(0.9),
          .p95 = at(0.95),
          .p99 = at(0.99),
          .max = values.back()};
}

}  // namespace baton
