#include "worker_rpc/kv_event_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/worker_rpc/served_worker.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

// A client that reads the stream message by message.
class Reader {
 public:
  explicit Reader(ServedWorker& worker, uint64_t epoch = 0, uint64_t sequence = 0) {
    context_.set_deadline(DeadlineIn(kTestTimeoutMs));
    v1::StreamKvEventsRequest request;
    request.set_epoch(epoch);
    request.set_sequence(sequence);
    reader_ = worker.stub->StreamKvEvents(&context_, request);
  }
  ~Reader() {
    if (reader_ != nullptr) Leave();
  }

  v1::KvEventBatch Next() {
    v1::KvEventBatch batch;
    EXPECT_TRUE(reader_->Read(&batch)) << "the stream has ended";
    EXPECT_EQ(batch.epoch(), ServedWorker::kEpoch);
    return batch;
  }
  // REQUIRES: the stream ends by itself.
  grpc::Status End() {
    v1::KvEventBatch batch;
    while (reader_->Read(&batch)) {
    }
    return std::exchange(reader_, nullptr)->Finish();
  }
  grpc::Status Leave() {
    context_.TryCancel();
    return End();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::KvEventBatch>> reader_;
};

std::vector<KvEvent> EventsOf(const v1::KvEventBatch& batch) {
  absl::StatusOr<std::vector<KvEvent>> events = DecodeKvEvents(batch.events());
  EXPECT_TRUE(events.ok()) << events.status();
  return events.ok() ? *std::move(events) : std::vector<KvEvent>();
}

TEST(KvEventStream, TheFirstMessageNamesTheLastBatchAndNewOnesFollow) {
  ServedWorker worker({});
  worker.engine.Store({Hash128{1, 1}});
  Reader reader(worker, ServedWorker::kEpoch, 1);
  const v1::KvEventBatch first = reader.Next();
  EXPECT_EQ(first.sequence(), 1u);
  EXPECT_EQ(first.events(), "");
  worker.engine.Drop({Hash128{1, 1}});
  const v1::KvEventBatch second = reader.Next();
  EXPECT_EQ(second.sequence(), 2u);
  EXPECT_EQ(second.parts(), 0u);
  const std::vector<KvEvent> events = EventsOf(second);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, KvEvent::Kind::kRemoved);
  EXPECT_EQ(events[0].hashes, (std::vector<Hash128>{{1, 1}}));
}

TEST(KvEventStream, AReaderOfAnotherEpochGetsAllBatches) {
  ServedWorker worker({});
  worker.engine.Store({Hash128{1, 1}});
  Reader reader(worker, ServedWorker::kEpoch - 1, 1);
  EXPECT_EQ(reader.Next().sequence(), 1u);
  const v1::KvEventBatch batch = reader.Next();
  EXPECT_EQ(batch.sequence(), 1u);
  EXPECT_EQ(EventsOf(batch).size(), 1u);
}

TEST(KvEventStream, AReaderThatMissedDroppedBatchesGetsASnapshotInParts) {
  ServedWorker worker({.kept_event_bytes = 1});
  worker.engine.Store({Hash128{1, 1}});
  worker.engine.Store({Hash128{2, 2}});
  worker.engine.Drop({Hash128{1, 1}});
  worker.engine.Store({Hash128{3, 3}});
  Reader reader(worker);
  EXPECT_EQ(reader.Next().sequence(), 4u);
  std::vector<Hash128> reported;
  for (uint32_t part = 0; part < 3;
       ++part) {  // the fake engine sends an empty one, then one for each hash
    const v1::KvEventBatch batch = reader.Next();
    EXPECT_EQ(batch.sequence(), 4u);
    EXPECT_EQ(batch.part(), part);
    EXPECT_EQ(batch.parts(), 3u);
    for (const KvEvent& event : EventsOf(batch)) {
      EXPECT_EQ(event.kind, KvEvent::Kind::kStored);
      reported.insert(reported.end(), event.hashes.begin(), event.hashes.end());
    }
  }
  EXPECT_EQ(reported, (std::vector<Hash128>{{2, 2}, {3, 3}}));
  worker.engine.Store({Hash128{4, 4}});
  EXPECT_EQ(reader.Next().sequence(), 5u) << "batches continue after the snapshot";
}

TEST(KvEventStream, AWorkerWithoutAPrefixCacheRefusesReaders) {
  ServedWorker worker({.prefix_cache = false});
  const grpc::Status status = Reader(worker).End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("publishes no KV events"));
}

TEST(KvEventStream, ReadersAreBoundedAndAReaderThatLeavesFreesItsPlace) {
  ServedWorker worker({});
  std::vector<std::unique_ptr<Reader>> readers;
  for (int i = 0; i < kMaxKvEventStreams; ++i) {
    readers.push_back(std::make_unique<Reader>(worker));
    readers.back()->Next();  // it has its place
  }
  const grpc::Status refused = Reader(worker).End();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("64"));
  EXPECT_EQ(readers.back()->Leave().error_code(), grpc::StatusCode::CANCELLED);
  readers.pop_back();
  // The server notices the end some time later.
  const auto deadline = DeadlineIn(kTestTimeoutMs);
  while (true) {
    grpc::ClientContext context;
    context.set_deadline(deadline);
    const auto reader = worker.stub->StreamKvEvents(&context, v1::StreamKvEventsRequest());
    v1::KvEventBatch batch;
    if (reader->Read(&batch)) {
      context.TryCancel();
      reader->Finish();
      break;
    }
    ASSERT_EQ(reader->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
}

}  // namespace
}  // namespace baton
