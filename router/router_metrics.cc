#include "router/router_metrics.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace baton {
namespace {

RoleLabel RoleLabelOf(WorkerRole role) {
  switch (role) {
    case WorkerRole::kPrefill:
      return RoleLabel::kPrefill;
    case WorkerRole::kDecode:
      return RoleLabel::kDecode;
    case WorkerRole::kBoth:
      return RoleLabel::kBoth;
  }
  return RoleLabel::kBoth;
}

WorkerState StateOf(const WorkerRecord& worker) {
  if (worker.silent) return WorkerState::kSilent;
  if (worker.unreachable) return WorkerState::kUnreachable;
  return worker.report.draining ? WorkerState::kDraining : WorkerState::kUsable;
}

void SetWorkerCounts(const std::vector<WorkerRecord>& workers, MetricSet& metrics) {
  std::array<std::array<int64_t, kWorkerStateNames.size()>, kRoleNames.size()> counts = {};
  for (const WorkerRecord& worker : workers) {
    ++counts[static_cast<size_t>(RoleLabelOf(worker.report.role))]
            [static_cast<size_t>(StateOf(worker))];
  }
  for (size_t role = 0; role < counts.size(); ++role) {
    for (size_t state = 0; state < counts[role].size(); ++state) {
      metrics.Set(Metric::kWorkers, counts[role][state], role, state);
    }
  }
}

}  // namespace

void SetRouterMetrics(const RouterState& state, MetricSet& metrics) {
  metrics.Set(Metric::kRequestsInFlight, state.counters.active_requests);
  metrics.Set(Metric::kRequestsWaiting, static_cast<int64_t>(state.waiting));
  SetWorkerCounts(state.workers, metrics);
  const FleetIndexStatus& index = state.index;
  metrics.Set(Metric::kIndexUnits, static_cast<int64_t>(index.units));
  metrics.Set(Metric::kIndexCapacity, static_cast<int64_t>(index.max_units));
  metrics.Set(Metric::kIndexMemberships, static_cast<int64_t>(index.memberships));
  metrics.Set(Metric::kIndexPredicted, static_cast<int64_t>(state.predicted_units));
  metrics.Set(Metric::kIndexBytes, static_cast<int64_t>(index.bytes));
  metrics.Set(Metric::kIndexRefused, static_cast<int64_t>(index.refused_units));
  metrics.Set(Metric::kIndexGaps, index.gaps);
  metrics.Set(Metric::kIndexSnapshots, index.snapshots);
  metrics.Set(Metric::kIndexUnfollowed,
              std::count_if(index.workers.begin(), index.workers.end(),
                            [](const FollowedWorker& worker) { return !worker.followed; }));
}

}  // namespace baton
