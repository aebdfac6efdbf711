// Tests of the router's index of worker caches: KV events over real gRPC streams.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/e2e/service_fixture.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

class ServiceIndexTest : public ServiceTest {
 protected:
  std::string DecodeWorkerOfThePrompt() {
    const Answer answer = Generate(LongPrompt());
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    return answer.finished.ledger().decode_worker();
  }
};

TEST_F(ServiceIndexTest, RequestsFollowStoredEventsAndStopAfterRemovedEvents) {
  AddDecode();
  FakeWorker& holder = AddDecode();
  holder.engine().Store(PromptHashes());
  ASSERT_TRUE(TickingUntilUnits("worker-2", 12));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(DecodeWorkerOfThePrompt(), "worker-2");
  EXPECT_EQ(Status().index().units(), 12);
  EXPECT_EQ(Indexed("worker-2").sequence(), 1u);
  EXPECT_EQ(Indexed("worker-2").gaps(), 0);
  EXPECT_EQ(Indexed("worker-1").units(), 0);
  holder.engine().Drop(PromptHashes());
  ASSERT_TRUE(TickingUntilUnits("worker-2", 0));
  EXPECT_EQ(Indexed("worker-2").sequence(), 2u);
}

TEST_F(ServiceIndexTest, ManyBatchesArriveInOrder) {
  FakeWorker& worker = AddDecode();
  ASSERT_TRUE(TickingUntilUnits("worker-1", 0));
  for (uint64_t i = 1; i <= 3000; ++i) worker.engine().Store({{i, i}});
  for (uint64_t i = 1; i <= 2900; ++i) worker.engine().Drop({{i, i}});
  ASSERT_TRUE(TickingUntilUnits("worker-1", 100));
  EXPECT_EQ(Indexed("worker-1").sequence(), 5900u);
  EXPECT_EQ(Indexed("worker-1").gaps(), 0);
  EXPECT_EQ(Indexed("worker-1").snapshots(), 0);
}

TEST_F(ServiceIndexTest, EventsThatTheWorkerHasDroppedComeAsASnapshot) {
  FakeWorker& worker = AddDecode({.kept_event_bytes = 1000});
  for (uint64_t i = 1; i <= 100; ++i) worker.engine().Store({{i, i}});
  worker.engine().Drop({{5, 5}});
  ASSERT_TRUE(TickingUntilUnits("worker-1", 99));
  EXPECT_EQ(Indexed("worker-1").snapshots(), 1);
  EXPECT_EQ(Indexed("worker-1").sequence(), 101u);
  worker.engine().Store({{5, 5}});
  ASSERT_TRUE(TickingUntilUnits("worker-1", 100));
  EXPECT_EQ(Indexed("worker-1").snapshots(), 1)
      << "after the snapshot the stream continues with batches";
  EXPECT_EQ(Indexed("worker-1").sequence(), 102u);
}

TEST_F(ServiceIndexTest, ARestartedRouterRebuildsItsIndexBeforeItIsReady) {
  FakeWorker& holder = AddDecode();
  holder.engine().Store(PromptHashes());
  ASSERT_TRUE(TickingUntilUnits("worker-1", 12));
  const std::string address = router_->rpc().address();
  router_.reset();
  StartRouter(address);
  bool ready = false;
  ASSERT_TRUE(Eventually([&] {
    ready = router_->Tick();
    return ready;
  }));
  EXPECT_TRUE(Indexed("worker-1").followed());
  EXPECT_EQ(Indexed("worker-1").units(), 12);
}

TEST_F(ServiceIndexTest, AWorkerThatLeavesTakesItsUnitsWithIt) {
  FakeWorker& worker = AddDecode();
  worker.engine().Store(PromptHashes());
  ASSERT_TRUE(TickingUntilUnits("worker-1", 12));
  workers_.clear();
  ASSERT_TRUE(Ticking([this] { return Status().index().memberships() == 0; }));
  EXPECT_EQ(Status().index().workers_size(), 0);
}

TEST_F(ServiceIndexTest, AWorkerWithoutKvEventsHasNothingIndexedAndDelaysNoReadiness) {
  // The router itself answers at this address, and it does not implement StreamKvEvents.
  AddDecode();
  Register("old", router_->rpc().address(), v1::WORKER_ROLE_DECODE);
  ASSERT_TRUE(Ticking([this] { return Indexed("old").trouble() != "no KV events yet"; }));
  EXPECT_THAT(Indexed("old").trouble(), HasSubstr("does not serve this call"));
  EXPECT_FALSE(Indexed("old").followed());
  EXPECT_EQ(Indexed("old").units(), 0);
  EXPECT_TRUE(Eventually([this] { return router_->Tick(); }));
}

TEST_F(ServiceIndexTest, AWorkerWithoutPrefixCacheIsNotAsked) {
  FakeWorker& worker = AddDecode({.prefix_cache = false});
  EXPECT_TRUE(Eventually([this] { return router_->Tick(); }));
  EXPECT_EQ(Status().index().workers_size(), 0);
  // A direct call gets the reason.
  grpc::ClientContext context;
  v1::KvEventBatch batch;
  const auto stub = v1::Worker::NewStub(MakeChannel(worker.address()));
  const auto reader = stub->StreamKvEvents(&context, v1::StreamKvEventsRequest());
  EXPECT_FALSE(reader->Read(&batch));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

class Reader {
 public:
  explicit Reader(const std::string& address) : stub_(v1::Worker::NewStub(MakeChannel(address))) {
    context_.set_deadline(DeadlineIn(20'000));
  }
  void Start(const v1::StreamKvEventsRequest& request) {
    reader_ = stub_->StreamKvEvents(&context_, request);
  }
  // Returns the next batch, or an empty message at the stream's end.
  v1::KvEventBatch Next() {
    v1::KvEventBatch batch;
    reader_->Read(&batch);
    return batch;
  }
  grpc::Status Finish() { return reader_->Finish(); }
  void Cancel() { context_.TryCancel(); }

 private:
  std::unique_ptr<v1::Worker::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::KvEventBatch>> reader_;
};

TEST_F(ServiceIndexTest, AStreamBeginsWithEpochAndLastNumberAndContinuesAtTheReadersPosition) {
  FakeWorker& worker = AddDecode();
  for (uint64_t i = 1; i <= 5; ++i) worker.engine().Store({{i, i}});
  v1::StreamKvEventsRequest request;
  for (const auto& [epoch, from] : {std::pair<uint64_t, uint64_t>(1, 3), {99, 0}, {1, 0}}) {
    Reader reader(worker.address());
    request.set_epoch(epoch);
    request.set_sequence(epoch == 99 ? 3 : from);
    reader.Start(request);
    const v1::KvEventBatch first = reader.Next();
    EXPECT_EQ(first.epoch(), 1u);
    EXPECT_EQ(first.sequence(), 5u);
    EXPECT_EQ(first.events(), "");
    for (uint64_t sequence = from + 1; sequence <= 5; ++sequence) {
      const v1::KvEventBatch batch = reader.Next();
      EXPECT_EQ(batch.epoch(), 1u);
      EXPECT_EQ(batch.sequence(), sequence);
      EXPECT_EQ(batch.parts(), 0u);
      EXPECT_EQ(DecodeKvEvents(batch.events())->at(0).hashes.at(0), (Hash128{sequence, sequence}));
    }
    reader.Cancel();
    reader.Finish();
  }
}

TEST_F(ServiceIndexTest, AStalledReaderDelaysNoOtherReaderAndGetsASnapshotLater) {
  constexpr size_t kKept = 64 << 10;
  FakeWorker& worker = AddDecode({.kept_event_bytes = kKept});
  Reader reader(worker.address());
  reader.Start({});
  EXPECT_EQ(reader.Next().sequence(), 0u);
  // Much more than the connection and the log can hold.
  const std::vector<Hash128> large(20'000, Hash128{1, 1});
  for (int i = 0; i < 100; ++i) worker.engine().Store(large);
  int snapshots = 0;
  for (uint64_t read = 0; read < 100;) {
    const v1::KvEventBatch batch = reader.Next();
    ASSERT_NE(batch.epoch(), 0u) << "the stream has ended";
    if (batch.parts() == 0) {
      EXPECT_EQ(batch.sequence(), read + 1);
    } else {
      ++snapshots;
      EXPECT_GT(batch.sequence(), read + 1) << "a snapshot comes only after a gap";
      EXPECT_EQ(batch.parts(), 2u) << "the empty part, and one part for the one hash";
      EXPECT_EQ(reader.Next().part(), 1u);
    }
    read = batch.sequence();
  }
  EXPECT_GE(snapshots, 1);
  worker.engine().Drop({{1, 1}});
  EXPECT_EQ(reader.Next().sequence(), 101u);
  reader.Cancel();
  reader.Finish();
}

TEST_F(ServiceIndexTest, ReadersBeyondTheLimitAreRefusedByName) {
  FakeWorker& worker = AddDecode();
  std::vector<std::unique_ptr<Reader>> readers;
  for (int32_t i = 0; i < kMaxKvEventStreams; ++i) {
    readers.push_back(std::make_unique<Reader>(worker.address()));
    readers.back()->Start({});
    EXPECT_EQ(readers.back()->Next().epoch(), 1u);
  }
  Reader one_more(worker.address());
  one_more.Start({});
  one_more.Next();
  const grpc::Status refused = one_more.Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("64"));
  for (const auto& reader : readers) {
    reader->Cancel();
    reader->Finish();
  }
  EXPECT_TRUE(Eventually([&] {
    Reader later(worker.address());
    later.Start({});
    const bool admitted = later.Next().epoch() == 1;
    later.Cancel();
    later.Finish();
    return admitted;
  }));
}

}  // namespace
}  // namespace baton
