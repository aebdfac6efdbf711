#include "routing/worker_places.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "tests/routing/registered_workers.h"

namespace baton {
namespace {

class WorkerPlacesTest : public WorkerRegistryTest {};

TEST_F(WorkerPlacesTest, OfARoleAreById) {
  const auto place = [this](const std::string& id) {
    const WorkerRecord& worker = *registry_.Find(NumberOf(id));
    return std::pair(worker.place, worker.alike);
  };
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  ASSERT_TRUE(registry_.Heartbeat(Report("c", 1)).ok());
  ASSERT_TRUE(registry_.Heartbeat(Report("b", 1)).ok());
  EXPECT_EQ(place("a"), std::pair(0, 3));
  EXPECT_EQ(place("b"), std::pair(1, 3));
  EXPECT_EQ(place("c"), std::pair(2, 3));
  registry_.MarkUnreachable(NumberOf("a"));
  EXPECT_EQ(place("b"), std::pair(0, 2)) << "only usable workers count";
  registry_.MarkReachable(NumberOf("a"));
  EXPECT_EQ(place("b"), std::pair(1, 3));
  registry_.SetSilent({NumberOf("a")});
  EXPECT_EQ(place("b"), std::pair(0, 2));
  registry_.SetSilent({});
  EXPECT_EQ(place("b"), std::pair(1, 3));
  WorkerReport draining = Report("a", 1);
  draining.draining = true;
  ASSERT_TRUE(registry_.Heartbeat(draining).ok());
  EXPECT_EQ(place("a").second, 0);
  EXPECT_EQ(place("b"), std::pair(0, 2));
  WorkerReport changed = Report("b", 1);
  changed.changes_role = true;
  changed.role = WorkerRole::kPrefill;
  ASSERT_TRUE(registry_.Heartbeat(changed).ok());
  EXPECT_EQ(place("b"), std::pair(0, 1));
  EXPECT_EQ(place("c"), std::pair(0, 1));
}

TEST_F(WorkerPlacesTest, ALargeFleetHasNoPlaces) {
  WorkerRegistry large({}, &clock_);
  for (size_t i = 0; i < kMostPlaced; ++i) {
    ASSERT_TRUE(large.Heartbeat(Report("w" + std::to_string(i), 1)).ok());
  }
  const auto alike = [&] { return large.workers().front().alike; };
  EXPECT_EQ(alike(), static_cast<int32_t>(kMostPlaced));
  ASSERT_TRUE(large.Heartbeat(Report("z", 1)).ok());
  EXPECT_EQ(alike(), 0);
  large.Leave("z", Epoch(1));
  EXPECT_EQ(alike(), static_cast<int32_t>(kMostPlaced));
}

}  // namespace
}  // namespace baton
