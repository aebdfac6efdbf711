// Sets the metrics of a router that are figures of its state. Metrics of events are counted where
// they happen (request_meter.h, and others).
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "metrics/metric_set.h"
#include "router/fleet_index.h"
#include "router/router_core.h"
#include "routing/worker_registry.h"

namespace baton {

struct RouterState {
  RouterCounters counters;
  size_t waiting = 0;  // requests that wait for their first token
  FleetIndexStatus index;
  size_t predicted_units = 0;
  std::vector<WorkerRecord> workers;
};

void SetRouterMetrics(const RouterState& state, MetricSet& metrics);

}  // namespace baton
