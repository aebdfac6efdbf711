// Figures of this process, as the system reports them.
//
// Thread safety: pure functions, except for reading /proc.
#pragma once

#include <cstdint>

#include "metrics/metric_set.h"

namespace baton {

// A figure that /proc does not report is 0.
struct ProcessFigures {
  int64_t cpu_us = 0;      // user and system
  int64_t started_us = 0;  // since 1970
  int64_t resident_bytes = 0;
  int64_t virtual_bytes = 0;
  int64_t open_fds = 0;
  int64_t max_fds = 0;
  int64_t threads = 0;
};
ProcessFigures ReadProcessFigures();

void SetProcessMetrics(const ProcessFigures& figures, MetricSet& metrics);

}  // namespace baton
