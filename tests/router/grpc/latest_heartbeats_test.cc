#include "router/grpc/latest_heartbeats.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr int64_t kHourMs = 3'600'000;

v1::WorkerStatus Status(const std::string& id, uint64_t epoch) {
  v1::WorkerStatus status;
  status.set_worker_id(id);
  status.set_epoch(epoch);
  return status;
}

TEST(LatestHeartbeats, AWorkerThatLeavesIsShownWhileItMayDrain) {
  LatestHeartbeats heartbeats;
  heartbeats.Put(Status("a", 1));
  heartbeats.Put(Status("b", 1));
  EXPECT_TRUE(heartbeats.Leaving().empty());
  heartbeats.PutLeaving(Status("a", 1), kHourMs);
  heartbeats.PutLeaving(Status("b", 1), 0);
  heartbeats.KeepOnly({});
  ASSERT_EQ(heartbeats.Leaving().size(), 1);
  EXPECT_EQ(heartbeats.Leaving()[0].worker_id(), "a");
}

TEST(LatestHeartbeats, ANewEpochEndsTheDrainOfTheOldOne) {
  LatestHeartbeats heartbeats;
  heartbeats.Put(Status("a", 1));
  heartbeats.PutLeaving(Status("a", 1), kHourMs);
  heartbeats.Put(Status("a", 2));
  EXPECT_TRUE(heartbeats.Leaving().empty());
}

TEST(LatestHeartbeats, IgnoresAGoodbyeWithAnUnknownEpoch) {
  LatestHeartbeats heartbeats;
  heartbeats.Put(Status("a", 2));
  heartbeats.PutLeaving(Status("a", 1), kHourMs);
  heartbeats.PutLeaving(Status("stranger", 1), kHourMs);
  EXPECT_TRUE(heartbeats.Leaving().empty());
}

TEST(LatestHeartbeats, KnowsWhereWorkersServeTheirMetrics) {
  LatestHeartbeats heartbeats;
  v1::WorkerStatus a = Status("a", 1);
  a.set_role(v1::WORKER_ROLE_PREFILL);
  heartbeats.Put(a, "10.0.0.1:9100");
  heartbeats.Put(Status("b", 1));
  heartbeats.Put(Status("c", 1), "not an address");
  heartbeats.Put(Status("d", 1), std::string(10'000, 'h') + ":1");
  ASSERT_EQ(heartbeats.MetricsTargets().size(), 1);
  EXPECT_EQ(heartbeats.MetricsTargets()[0].address, "10.0.0.1:9100");
  EXPECT_EQ(heartbeats.MetricsTargets()[0].worker_id, "a");
  EXPECT_EQ(heartbeats.MetricsTargets()[0].role, v1::WORKER_ROLE_PREFILL);
  heartbeats.Put(a, "10.0.0.1:9200");  // restarted
  EXPECT_EQ(heartbeats.MetricsTargets()[0].address, "10.0.0.1:9200");
  heartbeats.Put(a);  // now without metrics
  EXPECT_TRUE(heartbeats.MetricsTargets().empty());
  heartbeats.Put(a, "10.0.0.1:9200");
  heartbeats.KeepOnly({});
  EXPECT_TRUE(heartbeats.MetricsTargets().empty());
}

}  // namespace
}  // namespace baton
