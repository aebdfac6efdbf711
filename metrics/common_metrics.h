// Metrics that every program has.
//
// Thread safety: constants.
#pragma once

#include "metrics/metric_row.h"

namespace baton::metric_row {

inline constexpr MetricDeclaration kCommonMetrics[] = {
    Gauge(kBuildInfo, "baton_build_info", "",
          "Always 1. The labels name the program and its version.",
          Labels{MetricLabel{"version"}, MetricLabel{"program"}}),
    Gauge(kReady, "baton_ready", "", "1 while /readyz answers 200, else 0."),
    Counter(kProcessCpu, "process_cpu_seconds_total", "seconds",
            "CPU time of the process, user and system."),
    Gauge(kProcessStart, "process_start_time_seconds", "seconds",
          "Start of the process, in seconds since 1970."),
    Gauge(kProcessResident, "process_resident_memory_bytes", "bytes",
          "Resident memory of the process."),
    Gauge(kProcessVirtual, "process_virtual_memory_bytes", "bytes",
          "Address space of the process."),
    Gauge(kProcessOpenFds, "process_open_fds", "descriptors", "Open file descriptors."),
    Gauge(kProcessMaxFds, "process_max_fds", "descriptors", "Limit on open file descriptors."),
    Gauge(kProcessThreads, "process_threads", "threads", "Threads of the process."),
    Counter(kTraceSpans, "baton_trace_spans_total", "spans",
            "Spans of traces that the collector has accepted (--otlp-endpoint)."),
    Counter(kTraceSpansDropped, "baton_trace_spans_dropped_total", "spans",
            "Spans of traces that were lost: the queue was full, or the collector did not accept "
            "them in time."),
};

}  // namespace baton::metric_row
