#include "engine/kv_event_feed.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace baton {
namespace {

TEST(KvEventFeed, ANewReaderIsNotifiedOfExistingBatches) {
  KvEventFeed feed;
  std::vector<uint64_t> seen;
  const uint64_t subscription = feed.Subscribe([&] { seen.push_back(feed.last()); });
  feed.Publish({});
  feed.Publish({"a", "b"});
  feed.Publish({"c"});
  feed.Unsubscribe(subscription);
  feed.Publish({"d"});
  EXPECT_EQ(seen, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(feed.last(), 4u);
  EXPECT_EQ(*feed.Find(2), "b");
  EXPECT_EQ(feed.Find(5), nullptr);
}

TEST(KvEventFeed, ASlowReaderFindsAGap) {
  KvEventFeed feed(1000);
  for (int i = 0; i < 100; ++i) feed.Publish({std::string(100, 'x')});
  EXPECT_EQ(feed.Find(1), nullptr);
  EXPECT_NE(feed.Find(100), nullptr);
}

TEST(KvEventFeed, ASnapshotIsSharedUntilSomethingHappens) {
  KvEventFeed feed;
  feed.Publish({"a"});
  int made = 0;
  const auto make = [&made] { return std::vector<std::string>{std::to_string(++made)}; };
  const auto first = feed.Snapshot(make);
  EXPECT_EQ(first->sequence, 1u);
  EXPECT_EQ(feed.Snapshot(make), first);
  feed.Publish({"b"});
  const auto second = feed.Snapshot(make);
  EXPECT_EQ(second->sequence, 2u);
  EXPECT_EQ(second->parts, std::vector<std::string>{"2"});
  EXPECT_EQ(first->parts, std::vector<std::string>{"1"}) << "its reader still has it";
}

TEST(KvEventFeed, AReaderMissesNothingDuringPublishing) {
  constexpr uint64_t kBatches = 2000;
  KvEventFeed feed;
  std::atomic<uint64_t> read = 0;
  std::mutex mutex;
  const auto pump = [&] {
    std::lock_guard lock(mutex);
    while (const KvEventLog::Batch batch = feed.Find(read + 1)) {
      EXPECT_EQ(*batch, std::to_string(read + 1));
      ++read;
    }
  };
  std::thread publisher([&] {
    for (uint64_t i = 1; i <= kBatches; ++i) feed.Publish({std::to_string(i)});
  });
  const uint64_t subscription = feed.Subscribe(pump);
  pump();
  publisher.join();
  feed.Unsubscribe(subscription);
  EXPECT_EQ(read, kBatches);
}

}  // namespace
}  // namespace baton
