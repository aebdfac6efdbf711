#include "engine/kv_event_pump.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace baton {
namespace {

constexpr Epoch kOwn(7);

std::shared_ptr<const KvEventSnapshot> SnapshotOf(KvEventFeed& feed,
                                                  std::vector<std::string> parts) {
  return feed.Snapshot([&parts] { return parts; });
}

bool IsNothing(const KvEventPump::Action& action) {
  return !action.send.has_value() && !action.ask_for_snapshot;
}

TEST(KvEventPump, TheFirstMessageNamesTheFeedsLastBatch) {
  KvEventFeed feed;
  feed.Publish({"a", "b"});
  KvEventPump pump(&feed, kOwn, kOwn, 2);
  const KvEventPump::Action first = pump.Start();
  ASSERT_TRUE(first.send.has_value());
  EXPECT_EQ(first.send->sequence, 2u);
  EXPECT_EQ(first.send->events, nullptr);
  EXPECT_FALSE(first.ask_for_snapshot);
  EXPECT_TRUE(IsNothing(pump.OnSent())) << "the reader has caught up";
}

TEST(KvEventPump, OneMessageIsInFlightAtATime) {
  KvEventFeed feed;
  KvEventPump pump(&feed, kOwn, kOwn, 0);
  pump.Start();
  feed.Publish({"a", "b"});
  EXPECT_TRUE(IsNothing(pump.OnNews())) << "the first message is not written yet";
  EXPECT_EQ(*pump.OnSent().send->events, "a");
  EXPECT_TRUE(IsNothing(pump.OnNews()));
  EXPECT_EQ(*pump.OnSent().send->events, "b");
  EXPECT_TRUE(IsNothing(pump.OnSent()));
  feed.Publish({"c"});
  EXPECT_EQ(*pump.OnNews().send->events, "c");
}

TEST(KvEventPump, APositionOfAnotherEpochIsIgnored) {
  KvEventFeed feed;
  feed.Publish({"a", "b"});
  KvEventPump pump(&feed, kOwn, Epoch(6), 2);
  pump.Start();
  EXPECT_EQ(*pump.OnSent().send->events, "a");
}

TEST(KvEventPump, ASnapshotIsRequestedOnceAndSentInParts) {
  KvEventFeed feed(1);  // keeps only the last batch
  feed.Publish({"a", "b", "c"});
  KvEventPump pump(&feed, kOwn, kOwn, 0);
  pump.Start();
  const KvEventPump::Action behind = pump.OnSent();
  EXPECT_TRUE(behind.ask_for_snapshot);
  EXPECT_FALSE(behind.send.has_value());
  feed.Publish({"d"});
  EXPECT_TRUE(IsNothing(pump.OnNews())) << "the snapshot is being sent";
  const KvEventPump::Action part = pump.OnSnapshot(SnapshotOf(feed, {"x", "y"}));
  EXPECT_EQ(*part.send->events, "x");
  EXPECT_EQ(*pump.OnSent().send->events, "y");
  EXPECT_TRUE(IsNothing(pump.OnSent()));
  feed.Publish({"e"});
  EXPECT_EQ(*pump.OnNews().send->events, "e");
}

}  // namespace
}  // namespace baton
