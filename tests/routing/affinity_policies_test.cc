#include "routing/affinity_policies.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "tests/routing/fleet.h"

namespace baton {
namespace {

constexpr int kKeys = 2000;

RoutingInput InputOf(uint64_t key) {
  RoutingInput input;
  input.prompt_tokens = 100;
  input.affinity_key = key;
  return input;
}

Fleet DecodeWorkers(int count) {
  Fleet fleet;
  for (int i = 0; i < count; ++i) fleet.Add(WorkerRole::kDecode);
  return fleet;
}

std::vector<WorkerNumber> PlacesOfKeys(RoutingPolicy& policy, const Fleet& fleet) {
  std::vector<WorkerNumber> places;
  for (uint64_t key = 0; key < kKeys; ++key) {
    places.push_back(policy.Choose(InputOf(key), fleet.View())->decode);
  }
  return places;
}

TEST(ConsistentHashPolicy, ALeavingWorkersKeysAloneMoveAndSpreadOverAllOthers) {
  ConsistentHashPolicy policy{RoutingOptions()};
  Fleet fleet = DecodeWorkers(8);
  const auto before = PlacesOfKeys(policy, fleet);
  fleet.Remove(WorkerNumber(3));
  const auto after = PlacesOfKeys(policy, fleet);
  std::map<WorkerNumber, int> heirs;
  for (int key = 0; key < kKeys; ++key) {
    if (before[key] != WorkerNumber(3)) {
      EXPECT_EQ(after[key], before[key]) << key;
    } else {
      ++heirs[after[key]];
    }
  }
  EXPECT_EQ(heirs.size(), 7u);
}

TEST(ConsistentHashPolicy, AJoiningWorkerTakesItsShareAndMovesNoOtherKeys) {
  ConsistentHashPolicy policy{RoutingOptions()};
  Fleet fleet = DecodeWorkers(7);
  const auto before = PlacesOfKeys(policy, fleet);
  const WorkerNumber newcomer = fleet.Add(WorkerRole::kDecode).number;
  const auto after = PlacesOfKeys(policy, fleet);
  int moved = 0;
  for (int key = 0; key < kKeys; ++key) {
    if (after[key] == before[key]) continue;
    EXPECT_EQ(after[key], newcomer);
    ++moved;
  }
  EXPECT_NEAR(moved, kKeys / 8, kKeys / 24);
}

TEST(ConsistentHashPolicy, ARestartedWorkerGetsItsKeysBack) {
  ConsistentHashPolicy policy{RoutingOptions()};
  Fleet fleet = DecodeWorkers(5);
  const auto before = PlacesOfKeys(policy, fleet);
  fleet.workers[2].number = WorkerNumber(99);
  const auto after = PlacesOfKeys(policy, fleet);
  for (int key = 0; key < kKeys; ++key) {
    EXPECT_EQ(after[key], before[key] == WorkerNumber(3) ? WorkerNumber(99) : before[key]);
  }
}

TEST(ConsistentHashPolicy, NoWorkerGetsMoreThanItsBoundOfOneHotKey) {
  ConsistentHashPolicy policy({.load_bound = 1.25});
  Fleet fleet = DecodeWorkers(8);
  for (int i = 0; i < 400; ++i) {
    const RoutePlan plan = *policy.Choose(InputOf(5), fleet.View());
    const int32_t load = ++fleet.At(plan.decode).active;
    ASSERT_LE(load, static_cast<int32_t>(1.25 * (i + 1) / 8) + 1);
  }
  // Requests that the first worker cannot take go to the next in the key's order, so few workers
  // get the key.
  std::vector<int32_t> loads;
  for (const WorkerRecord& worker : fleet.workers) loads.push_back(worker.active);
  EXPECT_EQ(*std::max_element(loads.begin(), loads.end()), 63);
}

TEST(SessionAffinityPolicy, ASessionStaysWhileItsWorkerMayBeChosen) {
  SessionAffinityPolicy policy{RoutingOptions()};
  Fleet fleet = DecodeWorkers(3);
  const WorkerNumber first = policy.Choose(InputOf(1), fleet.View())->decode;
  fleet.At(first).active = 100;
  EXPECT_EQ(policy.Choose(InputOf(1), fleet.View())->decode, first);
  EXPECT_NE(policy.Choose(InputOf(2), fleet.View())->decode, first);
  fleet.At(first).report.draining = true;
  const WorkerNumber second = policy.Choose(InputOf(1), fleet.View())->decode;
  EXPECT_NE(second, first);
  fleet.At(first).report.draining = false;
  // The second worker has its cache now.
  EXPECT_EQ(policy.Choose(InputOf(1), fleet.View())->decode, second);
}

TEST(SessionAffinityPolicy, RemembersTheMostRecentSessions) {
  SessionAffinityPolicy policy({.max_sessions = 2});
  Fleet fleet = DecodeWorkers(2);
  const auto place = [&](uint64_t key) {
    return policy.Choose(InputOf(key), fleet.View())->decode;
  };
  EXPECT_EQ(place(1), WorkerNumber(1));
  EXPECT_EQ(place(2), WorkerNumber(1));
  EXPECT_EQ(place(1), WorkerNumber(1));
  fleet.At(WorkerNumber(1)).active = 5;
  EXPECT_EQ(place(3), WorkerNumber(2));  // forgets 2
  EXPECT_EQ(place(1), WorkerNumber(1));
  EXPECT_EQ(place(2), WorkerNumber(2));  // new again, and 3 is forgotten
}

TEST(AffinityKey, DependsOnTheSessionOrElseOnThePromptsBeginning) {
  const CacheNamespace space(7);
  std::vector<CacheUnit> units(640, 1);
  const auto hashes = ChainedHashes(space, units);
  units[600] = 2;
  const auto alike = ChainedHashes(space, units);
  units[100] = 2;
  const auto other = ChainedHashes(space, units);
  EXPECT_EQ(AffinityKey(space, "", hashes, 512), AffinityKey(space, "", alike, 512));
  EXPECT_NE(AffinityKey(space, "", hashes, 512), AffinityKey(space, "", other, 512));
  EXPECT_NE(AffinityKey(space, "", hashes, 640), AffinityKey(space, "", alike, 640));
  EXPECT_EQ(AffinityKey(space, "", hashes, 100'000), hashes.back().low);
  EXPECT_EQ(AffinityKey(space, "s", hashes, 512), AffinityKey(space, "s", other, 512));
  EXPECT_NE(AffinityKey(space, "s", hashes, 512), AffinityKey(space, "t", hashes, 512));
  EXPECT_NE(AffinityKey(space, "s", hashes, 512), AffinityKey(CacheNamespace(8), "s", hashes, 512));
  EXPECT_EQ(AffinityKey(space, "", {}, 512), AffinityKey(space, "", {}, 16));  // too short
}

}  // namespace
}  // namespace baton
