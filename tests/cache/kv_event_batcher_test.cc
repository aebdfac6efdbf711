#include "cache/index/kv_event_batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = KvEvent::Kind;

std::vector<KvEvent> Decoded(const std::vector<std::string>& batches) {
  std::vector<KvEvent> all;
  for (const std::string& batch : batches) {
    const auto events = DecodeKvEvents(batch);
    EXPECT_TRUE(events.ok()) << events.status();
    all.insert(all.end(), events->begin(), events->end());
  }
  return all;
}

KvEvent Event(Kind kind, std::optional<Hash128> parent, std::vector<Hash128> hashes) {
  return {.kind = kind, .parent = parent, .hashes = std::move(hashes)};
}

TEST(KvEventBatcher, ABlockThatContinuesThePreviousEventJoinsIt) {
  KvEventBatcher batcher;
  batcher.Stored({}, {1, 1});
  batcher.Stored(Hash128{1, 1}, {2, 2});
  batcher.Stored(Hash128{1, 1}, {3, 3});  // a branch
  batcher.Removed({3, 3});
  batcher.Removed({2, 2});
  batcher.Cleared();
  batcher.Stored({}, {1, 1});
  batcher.Stored({}, {5, 5});  // another chain
  const std::vector<std::string> batches = batcher.Take();
  EXPECT_THAT(batches, SizeIs(1));
  EXPECT_THAT(
      Decoded(batches),
      ElementsAre(Event(Kind::kStored, {}, {{1, 1}, {2, 2}}),
                  Event(Kind::kStored, Hash128{1, 1}, {{3, 3}}),
                  Event(Kind::kRemoved, {}, {{3, 3}, {2, 2}}), Event(Kind::kCleared, {}, {}),
                  Event(Kind::kStored, {}, {{1, 1}}), Event(Kind::kStored, {}, {{5, 5}})));
  EXPECT_THAT(batcher.Take(), IsEmpty());
}

TEST(KvEventBatcher, AnEventHasOneTier) {
  KvEventBatcher batcher;
  batcher.Stored({}, {1, 1}, CacheTier::kHost);
  batcher.Stored(Hash128{1, 1}, {2, 2});
  batcher.Removed({1, 1}, CacheTier::kHost);
  batcher.Removed({2, 2});
  batcher.Removed({3, 3});
  const std::vector<KvEvent> events = Decoded(batcher.Take());
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_EQ(events[0].tier, CacheTier::kHost);
  EXPECT_EQ(events[1], Event(Kind::kStored, Hash128{1, 1}, {{2, 2}}));
  EXPECT_EQ(events[2].tier, CacheTier::kHost);
  EXPECT_EQ(events[3], Event(Kind::kRemoved, {}, {{2, 2}, {3, 3}}));
}

TEST(KvEventBatcher, BatchesStayBelowTheirLargestSize) {
  constexpr size_t kBytes = 256;
  KvEventBatcher batcher(kBytes);
  std::vector<KvEvent> want;
  std::optional<Hash128> before;
  for (uint64_t i = 1; i <= 100; ++i) {
    batcher.Stored(before, {i, i});
    before = Hash128{i, i};
  }
  for (uint64_t i = 100; i >= 1; --i) batcher.Removed({i, i});
  const std::vector<std::string> batches = batcher.Take();
  size_t stored = 0, removed = 0;
  for (const std::string& batch : batches) EXPECT_LE(batch.size(), kBytes);
  for (const KvEvent& event : Decoded(batches)) {
    for (const Hash128& hash : event.hashes) {
      if (event.kind == Kind::kStored) {
        EXPECT_EQ(hash.low, ++stored);
      } else {
        EXPECT_EQ(hash.low, 100 - removed++);
      }
    }
  }
  EXPECT_EQ(stored, 100u);
  EXPECT_EQ(removed, 100u);
}

TEST(KvEventBatcher, ALongChainIsSeveralEventsOfTheLargestLength) {
  KvEventBatcher batcher(kMaxKvEventBatchBytes);
  for (uint64_t i = 1; i <= kMaxHashesPerKvEvent + 1; ++i) {
    batcher.Stored(i == 1 ? std::nullopt : std::optional(Hash128{i - 1, 0}), {i, 0});
  }
  const std::vector<KvEvent> events = Decoded(batcher.Take());
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_THAT(events[0].hashes, SizeIs(kMaxHashesPerKvEvent));
  EXPECT_EQ(events[1], Event(Kind::kStored, events[0].hashes.back(),
                             {{uint64_t{kMaxHashesPerKvEvent} + 1, 0}}));
}

}  // namespace
}  // namespace baton
