// Tests of prefix pulls between workers over real gRPC. The client must get its answer whether a
// pull succeeds or fails.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/service_fixture.h"

namespace baton {
namespace {

constexpr int32_t kCached = 192;  // cached tokens of LongPrompt's 200

// Pulls have so long that none is abandoned on a slow machine.
constexpr int64_t kPullLeastMs = 60'000;

class ServicePullTest : public ServiceTest {
 protected:
  explicit ServicePullTest(int64_t pull_least_ms = kPullLeastMs)
      : ServiceTest({}, {}, "", pull_least_ms) {}
  // Starts a decode worker that has the prompt's prefix cached, and an empty prefill worker.
  void StartFleet(FakeEngine::Script receiver = {}) {
    FakeWorker& decode = AddDecode();
    AddPrefill(decode, std::move(receiver));
    const CacheNamespace space =
        MakeNamespace({.tenant = "", .cache_salt = "", .lora = "", .model_revision = "fake-model"});
    decode.engine().Store(ChainedHashes(space, std::vector<CacheUnit>(200, CacheUnit{'x'})));
    ASSERT_TRUE(TickingUntilFollowed(2));
    ASSERT_TRUE(Ticking([this] { return Status().index().units() == 12; }));
  }
  FakeEngine& source() { return workers_[0]->engine(); }
  FakeEngine& receiver() { return workers_[1]->engine(); }
  static v1::GenerateRequest Remote() {
    v1::GenerateRequest request = LongPrompt();
    request.set_placement(v1::PREFILL_PLACEMENT_REMOTE);
    request.set_priority(-9);
    return request;
  }
  // Expects the whole answer, and no request or token that is still counted as load.
  void ExpectAnswered(const Answer& answer) {
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.text, "abc");
    ExpectNothingCounted();
  }
  void ExpectNothingCounted() {
    EXPECT_TRUE(Eventually([this] {
      for (const WorkerRecord& worker : router_->core().Workers()) {
        if (worker.active != 0 || worker.pending.tokens != 0) return false;
      }
      return router_->core().counters().active_requests == 0;
    }));
    EXPECT_TRUE(receiver().Eventually([](FakeEngine& e) { return e.live_pull_count() == 0; }));
  }
};

TEST_F(ServicePullTest, ThePullEndsBeforeThePrefillWorkerGetsTheRequest) {
  StartFleet();
  source().OnSend([this](const SendPrefixRequest& request, const FakeEngine::SendDone& done) {
    EXPECT_EQ(source().generated_count(), 0u) << "the request must come after the pull";
    done(kCached);
    receiver().EndPull(request.ticket.transfer_id, PullResult{.tokens = kCached,
                                                              .pulled_tokens = kCached,
                                                              .kv_bytes = 1 << 20,
                                                              .kv_transfer_us = 500});
  });
  const Answer answer = Generate(Remote());
  ExpectAnswered(answer);
  const v1::Ledger& ledger = answer.finished.ledger();
  EXPECT_EQ(ledger.pulled_tokens(), kCached);
  EXPECT_EQ(ledger.pull_source(), "worker-1");
  EXPECT_GT(ledger.pull_us(), 0);
  ASSERT_EQ(receiver().pulled().size(), 1u);
  const PullRequest pulled = receiver().pulled()[0];
  EXPECT_EQ(pulled.tokens, std::vector<TokenId>(kCached, 'x'));
  EXPECT_EQ(pulled.timeout_ms, kPullLeastMs);
  EXPECT_EQ(pulled.priority, -9);
  ASSERT_EQ(source().sent().size(), 1u);
  EXPECT_EQ(source().sent()[0].tokens, pulled.tokens);
  EXPECT_EQ(source().sent()[0].cache_namespace, pulled.cache_namespace);
  EXPECT_EQ(source().sent()[0].priority, -9);
  EXPECT_EQ(source().sent()[0].ticket.block_size, 16);
  EXPECT_EQ(source().sent()[0].ticket.receiver_epoch, receiver().epoch());
}

TEST_F(ServicePullTest, NothingIsSentIfNothingIsMissing) {
  StartFleet({.pull_has_all = true});
  const Answer answer = Generate(Remote());
  ExpectAnswered(answer);
  EXPECT_TRUE(source().sent().empty());
  EXPECT_EQ(answer.finished.ledger().pull_source(), "");
}

TEST_F(ServicePullTest, ASourceThatHasEvictedThePrefixCostsOnlyTime) {
  StartFleet();
  const Answer answer = Generate(Remote());
  ExpectAnswered(answer);
  EXPECT_EQ(source().sent().size(), 1u);
  EXPECT_EQ(answer.finished.ledger().pulled_tokens(), 0);
  EXPECT_EQ(answer.finished.ledger().pull_source(), "");
}

TEST_F(ServicePullTest, AReceiverThatRefusesAPullComputesThePrompt) {
  StartFleet({.pull_refusal = absl::ResourceExhaustedError("no room")});
  ExpectAnswered(Generate(Remote()));
  EXPECT_EQ(receiver().prefilled().size(), 1u);
}

TEST_F(ServicePullTest, AFailedTransferCostsOnlyTime) {
  StartFleet();
  source().OnSend([this](const SendPrefixRequest& request, const FakeEngine::SendDone& done) {
    receiver().EndPull(request.ticket.transfer_id, absl::DataLossError("crc"));
    done(kCached);
  });
  ExpectAnswered(Generate(Remote()));
}

class ServiceShortPullTest : public ServicePullTest {
 protected:
  ServiceShortPullTest() : ServicePullTest(RouterOptions().pull_least_ms) {}
};

TEST_F(ServiceShortPullTest, APullThatNeverEndsIsAbandoned) {
  StartFleet();
  source().OnSend([](const SendPrefixRequest&, const FakeEngine::SendDone&) {});
  ExpectAnswered(Generate(Remote()));
  EXPECT_GE(receiver().pulled().size(), 1u);
}

TEST_F(ServicePullTest, ALostSourceCostsOnlyTime) {
  FakeWorker& other = AddDecode();
  AddPrefill(other);
  FakeWorker& holder = AddDecode();
  const CacheNamespace space =
      MakeNamespace({.tenant = "", .cache_salt = "", .lora = "", .model_revision = "fake-model"});
  holder.engine().Store(ChainedHashes(space, std::vector<CacheUnit>(200, CacheUnit{'x'})));
  ASSERT_TRUE(TickingUntilFollowed(3));
  ASSERT_TRUE(Ticking([this] { return Status().index().units() == 12; }));
  workers_[1]->engine().OnPrefill([&](const TransferTicket& ticket) {
    other.engine().Answer(ticket.transfer_id);
    holder.engine().Answer(ticket.transfer_id);
  });
  holder.Die();
  ExpectAnswered(Generate(Remote()));
}

TEST_F(ServicePullTest, AClientThatLeavesDuringAPullLeavesNoStateBehind) {
  StartFleet();
  source().OnSend([](const SendPrefixRequest&, const FakeEngine::SendDone&) {});
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, Remote());
  ASSERT_TRUE(receiver().Eventually([](FakeEngine& e) { return e.live_pull_count() == 1; }));
  context.TryCancel();
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  ExpectNothingCounted();
  EXPECT_TRUE(source().generated().empty());
  EXPECT_TRUE(receiver().prefilled().empty());
}

TEST_F(ServicePullTest, ADeadlineEndsThePullToo) {
  StartFleet();
  source().OnSend([](const SendPrefixRequest&, const FakeEngine::SendDone&) {});
  const Answer answer = Generate(Remote(), /*timeout_ms=*/100);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  ExpectNothingCounted();
}

TEST_F(ServicePullTest, APrefixLongerThanTheContextIsRefused) {
  FakeWorker& worker = AddDecode();
  const auto stub = v1::Worker::NewStub(MakeChannel(worker.address()));
  v1::PullPrefixRequest pull;
  v1::SendPrefixRequest send;
  for (int i = 0; i < 513; ++i) {
    pull.add_token_ids('x');
    send.add_token_ids('x');
  }
  grpc::ClientContext pull_context, send_context;
  v1::PullPrefixEvent event;
  const auto reader = stub->PullPrefix(&pull_context, pull);
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::SendPrefixResponse response;
  EXPECT_EQ(stub->SendPrefix(&send_context, send, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(worker.engine().pulled().empty() && worker.engine().sent().empty());
}

}  // namespace
}  // namespace baton
