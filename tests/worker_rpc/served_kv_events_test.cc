#include "worker_rpc/served_kv_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/worker_rpc/recording_engine.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Reader final : public ServedKvEvents, public std::enable_shared_from_this<Reader> {
 public:
  using ServedKvEvents::ServedKvEvents;
  std::vector<uint64_t> sent;  // sequences
  std::vector<absl::Status> ends;

 protected:
  void SendMessage(const KvEventCursor::Message& message) override {
    sent.push_back(message.sequence);
  }
  void EndCall(const absl::Status& status) override { ends.push_back(status); }
  std::weak_ptr<ServedKvEvents> Weak() override { return weak_from_this(); }
};

class ServedKvEventsTest : public ::testing::Test {
 protected:
  explicit ServedKvEventsTest(size_t kept_bytes = KvEventFeed::kKeptBytes) {
    engine_.feed = std::make_unique<KvEventFeed>(kept_bytes);
  }
  void Publish() { engine_.feed->Publish({std::string(8, 'x')}); }
  // The reader starts at a batch that the feed has dropped, so it needs a snapshot.
  void StartBehindTheKeptBatches() {
    engine_.feed = std::make_unique<KvEventFeed>(/*kept_bytes=*/1);
    Publish();
    Publish();
    Publish();
    reader_->Start(limit_, engine_.epoch(), 0);
    reader_->OnSent();
  }

  RecordingEngine engine_;
  ConcurrencyLimit limit_{1};
  std::shared_ptr<Reader> reader_ = std::make_shared<Reader>(&engine_);
};

TEST_F(ServedKvEventsTest, SendsOneMessageAtATimeFromTheReadersPosition) {
  Publish();
  Publish();
  reader_->Start(limit_, engine_.epoch(), 1);
  EXPECT_THAT(reader_->sent, ElementsAre(2)) << "the first names the last batch";
  Publish();
  EXPECT_THAT(reader_->sent, ElementsAre(2)) << "the first message is not written yet";
  reader_->OnSent();
  reader_->OnSent();
  EXPECT_THAT(reader_->sent, ElementsAre(2, 2, 3));
  reader_->OnSent();
  EXPECT_EQ(reader_->sent.size(), 3u);
  Publish();
  EXPECT_THAT(reader_->sent, ElementsAre(2, 2, 3, 4)) << "at once";
}

TEST_F(ServedKvEventsTest, AReaderOfAnotherEpochStartsFromTheBeginning) {
  Publish();
  reader_->Start(limit_, Epoch(6), 1);
  reader_->OnSent();
  EXPECT_THAT(reader_->sent, ElementsAre(1, 1));
}

TEST_F(ServedKvEventsTest, AReaderWhoseBatchIsGoneGetsASnapshotWithoutTheLock) {
  StartBehindTheKeptBatches();
  ASSERT_EQ(engine_.snapshots.size(), 1u);
  Publish();  // while it waits
  EXPECT_EQ(reader_->sent.size(), 1u);
  engine_.snapshots[0](engine_.feed->Snapshot([] { return std::vector<std::string>{"all"}; }));
  EXPECT_THAT(reader_->sent, ElementsAre(3, 4));
}

TEST_F(ServedKvEventsTest, WithoutASnapshotTheCallEnds) {
  StartBehindTheKeptBatches();
  ASSERT_EQ(engine_.snapshots.size(), 1u);
  engine_.snapshots[0](absl::UnavailableError("ends"));
  EXPECT_THAT(reader_->ends, ElementsAre(absl::UnavailableError("ends")));
}

TEST_F(ServedKvEventsTest, EndsAtOnceWithoutASlotOrWithoutAPrefixCache) {
  reader_->Start(limit_, engine_.epoch(), 0);
  const auto second = std::make_shared<Reader>(&engine_);
  second->Start(limit_, engine_.epoch(), 0);
  ASSERT_EQ(second->ends.size(), 1u);
  EXPECT_EQ(second->ends[0].code(), absl::StatusCode::kResourceExhausted);
  reader_->GiveBackPlace();
  EXPECT_EQ(limit_.active(), 0);

  engine_.feed = nullptr;
  const auto third = std::make_shared<Reader>(&engine_);
  third->Start(limit_, engine_.epoch(), 0);
  EXPECT_THAT(third->ends,
              ElementsAre(absl::FailedPreconditionError("this worker publishes no KV events")));
  EXPECT_THAT(third->sent, IsEmpty());
  EXPECT_EQ(limit_.active(), 0);
}

TEST_F(ServedKvEventsTest, AReaderThatIsGoneGetsNothing) {
  reader_->Start(limit_, engine_.epoch(), 0);
  reader_->StopListening();
  reader_->OnSent();
  Publish();
  EXPECT_EQ(reader_->sent.size(), 1u);
  reader_->StopListening();
}

}  // namespace
}  // namespace baton
