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

}  // namespace
}  // namespace baton
