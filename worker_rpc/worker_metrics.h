// Sets the metrics of a worker that are figures of its status. Metrics of events are counted where
// they happen (engine/engine_metrics.h, heartbeat_client.h).
//
// A figure of WorkerStatus that is also a metric has a row in a table of worker_metrics.cc. So
// `baton status` and /metrics show the same number.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "baton/v1/inference.pb.h"
#include "engine/engine_status.h"
#include "metrics/metric_set.h"

namespace baton {

// A figure of WorkerStatus and its metric.
struct StatusFigure {
  Metric metric;
  int64_t (*of)(const v1::WorkerStatus& status);
  std::optional<int32_t> label = std::nullopt;  // value of the metric's only label
};
std::span<const StatusFigure> StatusFigures();

// Share of the fullest KV group's blocks that are neither free nor evictable, in millionths; 0 for
// a pool without blocks.
int64_t UsedMillionths(const v1::PoolStatus& pool);

void SetWorkerMetrics(const v1::WorkerStatus& status, const EngineStatus& engine,
                      MetricSet& metrics);

}  // namespace baton
