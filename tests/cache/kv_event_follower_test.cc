#include "cache/index/kv_event_follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = KvEvent::Kind;
using Outcome = KvEventFollower::Outcome;

constexpr IndexedWorker kA{1};
constexpr CacheTier kDevice = CacheTier::kDevice, kHost = CacheTier::kHost;

KvEvent Stored(CacheTier tier, std::optional<Hash128> parent, std::vector<Hash128> hashes) {
  return {.kind = Kind::kStored, .tier = tier, .parent = parent, .hashes = std::move(hashes)};
}
KvEvent Removed(CacheTier tier, std::vector<Hash128> hashes) {
  return {.kind = Kind::kRemoved, .tier = tier, .parent = {}, .hashes = std::move(hashes)};
}

TEST(KvEventFollower, AppliesBatchesInOrderOnceEach) {
  GlobalIndex index({.max_blocks = 100, .expected_blocks = 0, .key_seeds = {}});
  KvEventFollower follower(kA, Epoch(7), &index);
  const std::vector<Hash128> chain = {{1, 2}, {3, 4}, {5, 6}};
  const KvEvent first = Stored(kDevice, {}, {chain[0], chain[1]});
  const KvEvent second = Removed(kDevice, {chain[1]});
  EXPECT_EQ(follower.Batch(Epoch(7), 1, {{first}}), Outcome::kApplied);
  EXPECT_EQ(follower.Batch(Epoch(7), 2, {{second}}), Outcome::kApplied);
  EXPECT_EQ(follower.Batch(Epoch(7), 1, {{first}}), Outcome::kIgnored);
  EXPECT_EQ(follower.Batch(Epoch(6), 3, {{first}}), Outcome::kIgnored);
  EXPECT_THAT(index.MatchWorkers(chain), ElementsAre(HeldPrefix{kA, kDevice, 1}));
  EXPECT_EQ(follower.sequence(), 2u);
}

TEST(KvEventFollower, AfterAGapOnlyASnapshotHelps) {
  GlobalIndex index({.max_blocks = 100, .expected_blocks = 0, .key_seeds = {}});
  KvEventFollower follower(kA, Epoch(7), &index);
  const std::vector<Hash128> chain = {{1, 2}, {3, 4}, {5, 6}};
  EXPECT_EQ(follower.Batch(Epoch(7), 1, {{Stored(kDevice, {}, chain)}}), Outcome::kApplied);
  EXPECT_EQ(follower.Batch(Epoch(7), 3, {{Removed(kDevice, {chain[2]})}}), Outcome::kNeedSnapshot);
  EXPECT_FALSE(follower.ready());
  EXPECT_EQ(follower.Batch(Epoch(7), 2, {{Removed(kDevice, {chain[2]})}}), Outcome::kNeedSnapshot);
  EXPECT_EQ(follower.Snapshot(Epoch(6), 9, {}), Outcome::kIgnored);
  const KvEvent held = Stored(kHost, {}, {chain[0]});
  EXPECT_EQ(follower.Snapshot(Epoch(7), 4, {{held}}), Outcome::kApplied);
  EXPECT_TRUE(follower.ready());
  EXPECT_THAT(index.MatchWorkers(chain), ElementsAre(HeldPrefix{kA, kHost, 1}));
  EXPECT_EQ(follower.Batch(Epoch(7), 4, {{Removed(kHost, {chain[0]})}}), Outcome::kIgnored);
  EXPECT_EQ(follower.Batch(Epoch(7), 5, {{Removed(kHost, {chain[0]})}}), Outcome::kApplied);
  EXPECT_THAT(index.MatchWorkers(chain), IsEmpty());
}

TEST(KvEventFollower, ASnapshotInPartsIsReadyWithItsLast) {
  GlobalIndex index({.max_blocks = 100, .expected_blocks = 0, .key_seeds = {}});
  KvEventFollower follower(kA, Epoch(7), &index);
  const std::vector<Hash128> chain = {{1, 2}, {3, 4}, {5, 6}};
  const KvEvent old = Stored(kDevice, {}, {{9, 9}});
  ASSERT_EQ(follower.Batch(Epoch(7), 1, {{old}}), Outcome::kApplied);
  const KvEvent first = Stored(kDevice, {}, {chain[0], chain[1]});
  const KvEvent second = Stored(kDevice, chain[1], {chain[2]});
  EXPECT_EQ(follower.Snapshot(Epoch(7), 8, {{first}}, 0, 2), Outcome::kApplied);
  EXPECT_FALSE(follower.ready());
  EXPECT_EQ(follower.sequence(), 1u);
  EXPECT_EQ(follower.Snapshot(Epoch(7), 8, {{second}}, 1, 2), Outcome::kApplied);
  EXPECT_TRUE(follower.ready());
  EXPECT_EQ(follower.sequence(), 8u);
  EXPECT_THAT(index.MatchWorkers(chain), ElementsAre(HeldPrefix{kA, kDevice, 3}));
  EXPECT_THAT(index.MatchWorkers(std::vector<Hash128>{{9, 9}}), IsEmpty());
}

TEST(KvEventFollower, ASnapshotWithAMissingPartOrForeignEventsIsRefused) {
  GlobalIndex index({.max_blocks = 100, .expected_blocks = 0, .key_seeds = {}});
  KvEventFollower follower(kA, Epoch(7), &index);
  const KvEvent some = Stored(kDevice, {}, {{1, 2}});
  EXPECT_EQ(follower.Snapshot(Epoch(7), 8, {{some}}, 1, 2), Outcome::kNeedSnapshot);
  EXPECT_EQ(follower.Snapshot(Epoch(7), 8, {{some}}, 0, 3), Outcome::kApplied);
  EXPECT_EQ(follower.Snapshot(Epoch(7), 8, {{some}}, 2, 3), Outcome::kNeedSnapshot);
  EXPECT_EQ(follower.Snapshot(Epoch(7), 8, {{some}}, 0, 2), Outcome::kApplied);
  EXPECT_EQ(follower.Snapshot(Epoch(7), 9, {{some}}, 1, 2), Outcome::kNeedSnapshot);
  EXPECT_EQ(follower.Snapshot(Epoch(7), 9, {{some}}, 0, 0), Outcome::kNeedSnapshot);
  EXPECT_EQ(follower.Snapshot(Epoch(7), 9, {{Removed(kDevice, {{1, 2}})}}), Outcome::kNeedSnapshot);
  EXPECT_FALSE(follower.ready());
  EXPECT_EQ(follower.Snapshot(Epoch(7), 9, {{some}}), Outcome::kApplied);
  EXPECT_TRUE(follower.ready());
}

}  // namespace
}  // namespace baton
