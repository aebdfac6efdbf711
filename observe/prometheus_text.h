// Writes metrics in Prometheus's text format 0.0.4.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "metrics/metric_set.h"

namespace baton {

inline constexpr std::string_view kPrometheusTextType = "text/plain; version=0.0.4; charset=utf-8";

std::string ToPrometheusText(const std::vector<MetricFamily>& families);

}  // namespace baton
