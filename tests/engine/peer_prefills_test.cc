#include "engine/peer_prefills.h"

#include <gtest/gtest.h>

#include "tests/engine/machine_bench.h"

namespace baton {
namespace {

class PeerPrefillsTest : public testing::Test {
 protected:
  static constexpr RequestHandle kRequest = 3;

  void TearDown() override {
    EXPECT_TRUE(prefills_.empty());
    EXPECT_FALSE(bench_.scheduler.Contains(SequenceOf(kRequest)));
  }
  static PrefillRequest Request(int32_t n = 1) {
    PrefillRequest request;
    request.request_id = "name";
    request.prompt = std::vector<TokenId>(10, 'x');
    request.n = n;
    request.sampling = MachineBench::Greedy();
    request.ticket = {.transfer_id = 5,
                      .receiver_epoch = Epoch(9),
                      .address = "fake:there",
                      .first_block = 0,
                      .block_count = 3,
                      .timeout_ms = 1000};
    return request;
  }
  std::shared_ptr<PrefillRecord> Add(PrefillRequest request = Request()) {
    auto record = std::make_shared<PrefillRecord>();
    prefills_.Add(kRequest, std::move(request), std::make_shared<RecordingPrefillSink>(record));
    return record;
  }
  // Computes the prompt in one step that draws these tokens.
  void Compute(const std::vector<absl::StatusOr<TokenId>>& drawn) {
    SchedulerOutput plan = bench_.scheduler.Schedule();
    ASSERT_EQ(plan.chunks.size(), 1);
    for (const SequenceId id : plan.admitted) prefills_.OnAdmitted(id);
    std::vector<TokenDraw> draws;
    EXPECT_FALSE(prefills_.DescribeRow(plan.chunks[0], draws).draws_next);
    EXPECT_EQ(draws.size(), drawn.size());
    bench_.clock.AdvanceUs(20);
    bench_.scheduler.CommitStep(plan);
    prefills_.OnComputed(plan.chunks[0], MachineBench::Row(drawn, 10));
  }
  void EndSend(const absl::Status& status) {
    bench_.transport.EndSend(kRequest, status);
    prefills_.OnSendEvent(bench_.Poll());
  }

  MachineBench bench_{/*num_blocks=*/8};
  HandoffSends sends_{{.layer_pieces = {}}, &bench_.cache, &bench_.transport};
  PeerPrefills prefills_{{.limits = MachineBench::Limits()},
                         bench_.parts(),
                         &bench_.admission,
                         &sends_,
                         &bench_.sampler};
};

TEST_F(PeerPrefillsTest, HandsOverTheFirstTokenOfEachChoiceAndEndsWithTheTransfer) {
  const auto record = Add(Request(/*n=*/2));
  bench_.clock.AdvanceUs(7);
  Compute({'p', 'q'});
  EXPECT_FALSE(bench_.scheduler.Contains(SequenceOf(kRequest)))
      << "the transfer continues without the sequence";
  EXPECT_FALSE(record->done.has_value());
  EXPECT_EQ(prefills_.Name(kRequest), "name");
  const absl::StatusOr<HandoffManifest> manifest =
      DecodeManifest(bench_.transport.sends.at(kRequest).manifest, kFakeVocabulary);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  ASSERT_EQ(manifest->drawn.size(), 2);
  EXPECT_EQ(manifest->drawn[0].token, 'p');
  EXPECT_EQ(manifest->drawn[1].token, 'q');
  EndSend(absl::OkStatus());
  ASSERT_TRUE(record->done.has_value() && record->done->ok());
  const PrefillResult& result = **record->done;
  EXPECT_EQ(result.queue_us, 7);
  EXPECT_EQ(result.prefill_us, 20);
  EXPECT_EQ(result.chunks, 1);
  EXPECT_EQ(result.computed_tokens, 10);
  EXPECT_EQ(result.kv_bytes, 1000);
  EXPECT_EQ(result.kv_exposed_us, 4);
  EXPECT_EQ(prefills_.failures(), 0);
}

TEST_F(PeerPrefillsTest, KnowsWhetherARequestIsOnlyBeingSent) {
  EXPECT_FALSE(prefills_.NoneDelivers()) << "there is no request";
  Add();
  EXPECT_TRUE(prefills_.NoneDelivers());
  Compute({'p'});
  EXPECT_FALSE(prefills_.NoneDelivers());
  EndSend(absl::OkStatus());
}

TEST_F(PeerPrefillsTest, AReceiverThatIsGoneIsReportedAsAborted) {
  const auto record = Add();
  Compute({'p'});
  EndSend(absl::UnavailableError("refused"));
  EXPECT_EQ(record->done->status(), absl::AbortedError("the hand-off failed: refused"));
}

TEST_F(PeerPrefillsTest, OtherFailuresOfTheTransferAreReportedAsTheyAre) {
  const auto record = Add();
  Compute({'p'});
  EndSend(absl::DeadlineExceededError("late"));
  EXPECT_EQ(record->done->status(), absl::DeadlineExceededError("late"));
}

TEST_F(PeerPrefillsTest, EndsOnceAndCancelsItsTransfer) {
  const auto record = Add();
  prefills_.Fail(kRequest, absl::CancelledError("asked to"));
  prefills_.Fail(kRequest, absl::InternalError("again"));
  EXPECT_EQ(record->done->status(), absl::CancelledError("asked to"));
  EXPECT_EQ(bench_.transport.sends.at(kRequest).cancels, 1);
  EXPECT_EQ(prefills_.failures(), 1);
  EndSend(absl::CancelledError("asked to"));
}

TEST_F(PeerPrefillsTest, ARowThatAllowsNoTokenFailsTheRequest) {
  const auto record = Add();
  Compute({absl::InternalError("a NaN")});
  EXPECT_EQ(record->done->status(), absl::InternalError("a NaN"));
  EndSend(absl::CancelledError("asked to"));
}

TEST_F(PeerPrefillsTest, GivesUpWhenItIsPreemptedOrThePoolCannotHoldIt) {
  auto record = Add();
  prefills_.OnPreempted(SequenceOf(kRequest));
  EXPECT_TRUE(absl::IsResourceExhausted(record->done->status()));
  EndSend(absl::CancelledError("asked to"));
  record = Add();
  prefills_.EndExhausted(kRequest);
  EXPECT_EQ(record->done->status(),
            absl::ResourceExhaustedError("the KV pool of 8 blocks cannot hold the prompt of 10 "
                                         "tokens, which needs 3 blocks now"));
  EndSend(absl::CancelledError("asked to"));
}

TEST_F(PeerPrefillsTest, RefusalsReachTheSinkAndTakeNothing) {
  PrefillRequest resumed = Request(/*n=*/2);
  resumed.generated.tokens = {'y'};
  EXPECT_EQ(Add(resumed)->done->status(),
            absl::InvalidArgumentError("n is 2; it must be 1 if there are generated tokens"));
  PrefillRequest short_ticket = Request();
  short_ticket.ticket.block_count = 2;
  EXPECT_TRUE(absl::IsInvalidArgument(Add(short_ticket)->done->status()));
  bench_.transport.next_post = absl::InvalidArgumentError("a bad address");
  EXPECT_EQ(Add()->done->status(), absl::InvalidArgumentError("a bad address"));
  EXPECT_EQ(prefills_.failures(), 3);
  EXPECT_EQ(bench_.cache.Stats().blocks.owned, 0);
}

}  // namespace
}  // namespace baton
