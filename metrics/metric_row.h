// Makes the rows of the metric table (metric_table.h) from short declarations.
//
// Thread safety: constants.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "metrics/metric_table.h"

namespace baton::metric_row {

using enum Metric;

// Upper bounds in microseconds.
inline constexpr int64_t kLatencies[] = {1'000,     2'000,     5'000,      10'000,     20'000,
                                         50'000,    100'000,   200'000,    500'000,    1'000'000,
                                         2'000'000, 5'000'000, 10'000'000, 20'000'000, 60'000'000};
inline constexpr int64_t kTokenTimes[] = {500,     1'000,   2'000,   3'000,     5'000,    7'500,
                                          10'000,  15'000,  20'000,  30'000,    50'000,   75'000,
                                          100'000, 200'000, 500'000, 1'000'000, 5'000'000};
inline constexpr int64_t kWholeTimes[] = {50'000,     100'000,    250'000,     500'000,
                                          1'000'000,  2'500'000,  5'000'000,   10'000'000,
                                          30'000'000, 60'000'000, 120'000'000, 300'000'000};
inline constexpr int64_t kShortTimes[] = {10,    20,    50,     100,    200,     500,      1'000,
                                          2'000, 5'000, 10'000, 50'000, 200'000, 1'000'000};
inline constexpr int64_t kStepTimes[] = {200,     500,       1'000,    2'000,   5'000,
                                         10'000,  20'000,    50'000,   100'000, 200'000,
                                         500'000, 1'000'000, 5'000'000};
// Estimated divided by measured, in millionths.
inline constexpr int64_t kRatios[] = {100'000,   200'000,   333'333,   500'000,   666'667,
                                      800'000,   900'000,   1'100'000, 1'250'000, 1'500'000,
                                      2'000'000, 3'000'000, 5'000'000, 10'000'000};

inline constexpr MetricLabel kCode = {"code", kStatusCodeNames};
inline constexpr MetricLabel kTransport = {"transport", kTransportNames};

using Labels = std::array<MetricLabel, MetricDeclaration::kMostLabels>;

constexpr MetricDeclaration Counter(Metric id, std::string_view name, std::string_view unit,
                                    std::string_view help, Labels labels = {},
                                    MetricElsewhere elsewhere = {}) {
  return {id, name, MetricType::kCounter, unit, help, labels, {}, elsewhere};
}
constexpr MetricDeclaration Gauge(Metric id, std::string_view name, std::string_view unit,
                                  std::string_view help, Labels labels = {},
                                  MetricElsewhere elsewhere = {}) {
  return {id, name, MetricType::kGauge, unit, help, labels, {}, elsewhere};
}
// `buckets`: upper bounds in cells, rising.
constexpr MetricDeclaration Histogram(Metric id, std::string_view name, std::string_view unit,
                                      std::string_view help, std::span<const int64_t> buckets,
                                      Labels labels = {}, MetricElsewhere elsewhere = {}) {
  return {id, name, MetricType::kHistogram, unit, help, labels, buckets, elsewhere};
}

}  // namespace baton::metric_row
