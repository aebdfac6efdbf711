#include "router/router_metrics.h"

#include <gtest/gtest.h>

#include "tests/router/worker_reports.h"

namespace baton {
namespace {

WorkerRecord Worker(uint32_t number, WorkerRole role) {
  return {
      .number = WorkerNumber(number), .report = Report("w", role), .prompts = {}, .pending = {}};
}

TEST(RouterMetrics, WorkersCountByRoleAndState) {
  RouterState state;
  state.workers = {Worker(1, WorkerRole::kPrefill), Worker(2, WorkerRole::kDecode),
                   Worker(3, WorkerRole::kDecode), Worker(4, WorkerRole::kDecode),
                   Worker(5, WorkerRole::kBoth)};
  state.workers[1].report.draining = true;
  state.workers[2].report.draining = true;
  state.workers[2].silent = true;
  state.workers[3].unreachable = true;
  MetricSet metrics(MetricPrograms::kRouters);
  SetRouterMetrics(state, metrics);
  const auto workers = [&](RoleLabel role, WorkerState in) {
    return metrics.Cells(Metric::kWorkers, role, in);
  };
  EXPECT_EQ(workers(RoleLabel::kPrefill, WorkerState::kUsable), 1);
  EXPECT_EQ(workers(RoleLabel::kDecode, WorkerState::kDraining), 1);
  EXPECT_EQ(workers(RoleLabel::kDecode, WorkerState::kSilent), 1);
  EXPECT_EQ(workers(RoleLabel::kDecode, WorkerState::kUnreachable), 1);
  EXPECT_EQ(workers(RoleLabel::kDecode, WorkerState::kUsable), 0);
  EXPECT_EQ(workers(RoleLabel::kBoth, WorkerState::kUsable), 1);
  state.workers.clear();  // they have left
  SetRouterMetrics(state, metrics);
  EXPECT_EQ(workers(RoleLabel::kPrefill, WorkerState::kUsable), 0);
}

TEST(RouterMetrics, TheIndexAndTheQueuesAreThoseOfTheState) {
  RouterState state;
  state.counters.active_requests = 3;
  state.waiting = 2;
  state.predicted_units = 9;
  state.index.units = 10;
  state.index.max_units = 100;
  state.index.memberships = 20;
  state.index.refused_units = 4;
  state.index.bytes = 4096;
  state.index.gaps = 5;
  state.index.snapshots = 6;
  state.index.workers = {{.worker = WorkerNumber(1), .followed = true, .trouble = ""},
                         {.worker = WorkerNumber(2), .trouble = "no KV events yet"}};
  MetricSet metrics(MetricPrograms::kRouters);
  SetRouterMetrics(state, metrics);
  EXPECT_EQ(metrics.Cells(Metric::kRequestsInFlight), 3);
  EXPECT_EQ(metrics.Cells(Metric::kRequestsWaiting), 2);
  EXPECT_EQ(metrics.Cells(Metric::kIndexPredicted), 9);
  EXPECT_EQ(metrics.Cells(Metric::kIndexUnits), 10);
  EXPECT_EQ(metrics.Cells(Metric::kIndexCapacity), 100);
  EXPECT_EQ(metrics.Cells(Metric::kIndexMemberships), 20);
  EXPECT_EQ(metrics.Cells(Metric::kIndexRefused), 4);
  EXPECT_EQ(metrics.Cells(Metric::kIndexBytes), 4096);
  EXPECT_EQ(metrics.Cells(Metric::kIndexGaps), 5);
  EXPECT_EQ(metrics.Cells(Metric::kIndexSnapshots), 6);
  EXPECT_EQ(metrics.Cells(Metric::kIndexUnfollowed), 1);
}

// The labels are those of the enum in the registry.
TEST(RouterMetrics, FleetChangesHaveALabelEach) {
  MetricSet metrics(MetricPrograms::kRouters);
  metrics.Add(Metric::kFleetChanges, 1, FleetChange::Kind::kJoined);
  metrics.Add(Metric::kFleetChanges, 2, FleetChange::Kind::kAnswers);
  EXPECT_EQ(kFleetChangeNames[static_cast<size_t>(FleetChange::Kind::kJoined)], "joined");
  EXPECT_EQ(kFleetChangeNames[static_cast<size_t>(FleetChange::Kind::kExpired)], "expired");
  EXPECT_EQ(kFleetChangeNames[static_cast<size_t>(FleetChange::Kind::kAnswers)], "answers");
  EXPECT_EQ(static_cast<size_t>(FleetChange::Kind::kRoleChanged) + 1, kFleetChangeNames.size());
}

}  // namespace
}  // namespace baton
