#include "engine/kv_event_cursor.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace baton {
namespace {

std::shared_ptr<const KvEventSnapshot> SnapshotOf(KvEventFeed& feed,
                                                  std::vector<std::string> parts) {
  return feed.Snapshot([&parts] { return parts; });
}

TEST(KvEventCursor, SendsTheBatchesAfterItsPositionInOrder) {
  KvEventFeed feed;
  feed.Publish({"a", "b", "c"});
  KvEventCursor cursor(&feed, 1);
  const auto second = cursor.Next();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->sequence, 2u);
  EXPECT_EQ(second->parts, 0u);
  EXPECT_EQ(*second->events, "b");
  EXPECT_EQ(*cursor.Next()->events, "c");
  EXPECT_FALSE(cursor.Next().has_value());
  EXPECT_FALSE(cursor.needs_snapshot()) << "no new batch, none missed";
  feed.Publish({"d"});
  EXPECT_EQ(*cursor.Next()->events, "d");
}

TEST(KvEventCursor, StartsOverForANumberThatWasNeverPublished) {
  KvEventFeed feed;
  feed.Publish({"a", "b"});
  EXPECT_EQ(KvEventCursor(&feed, 2).sequence(), 2u);
  EXPECT_EQ(KvEventCursor(&feed, 3).sequence(), 0u);
}

TEST(KvEventCursor, ContinuesAfterTheSnapshotsLastBatch) {
  KvEventFeed feed(1);  // keeps only the last batch
  feed.Publish({"a", "b", "c"});
  KvEventCursor cursor(&feed, 0);
  EXPECT_FALSE(cursor.Next().has_value());
  ASSERT_TRUE(cursor.needs_snapshot());
  EXPECT_FALSE(cursor.Next().has_value());
  cursor.Take(SnapshotOf(feed, {"x", "y"}));
  feed.Publish({"d"});  // while the snapshot is being read
  for (const uint32_t part : {0u, 1u}) {
    const auto message = cursor.Next();
    ASSERT_TRUE(message.has_value());
    EXPECT_EQ(message->sequence, 3u);
    EXPECT_EQ(message->part, part);
    EXPECT_EQ(message->parts, 2u);
    EXPECT_EQ(*message->events, part == 0 ? "x" : "y");
  }
  EXPECT_EQ(cursor.sequence(), 3u);
  EXPECT_EQ(*cursor.Next()->events, "d");
  EXPECT_FALSE(cursor.Next().has_value());
  EXPECT_FALSE(cursor.needs_snapshot());
}

// Whatever the feed drops, a reader's sequence numbers rise by one, or jump with a snapshot.
TEST(KvEventCursor, LeavesNoGapWhenTheFeedDropsBatches) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  KvEventFeed feed(40);
  KvEventCursor cursor(&feed, 0);
  uint64_t known = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 2 == 0)
      feed.Publish(std::vector<std::string>(random() % 4, std::string(10, 'x')));
    if (random() % 3 == 0) continue;  // a slow reader
    if (const auto message = cursor.Next()) {
      if (message->parts == 0) {
        EXPECT_EQ(message->sequence, known + 1);
      } else {
        EXPECT_GT(message->sequence, known);
      }
      if (message->part + 1 >= message->parts) known = message->sequence;
      EXPECT_EQ(cursor.sequence(), known);
    } else if (cursor.needs_snapshot()) {
      cursor.Take(SnapshotOf(feed, std::vector<std::string>(1 + random() % 3, "all")));
    } else {
      EXPECT_EQ(known, feed.last());
    }
  }
}

}  // namespace
}  // namespace baton
