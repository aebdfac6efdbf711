#include "engine/generations.h"

#include <gtest/gtest.h>

#include "tests/engine/machine_bench.h"

namespace baton {
namespace {

class GenerationsTest : public testing::Test {
 protected:
  static constexpr RequestHandle kFirst = 3;

  void TearDown() override {
    EXPECT_TRUE(generations_.empty());
    EXPECT_EQ(bench_.scheduler.waiting_count() + bench_.scheduler.running_count(), 0);
    EXPECT_EQ(bench_.cache.Stats().blocks.owned, 0);
  }
  static GenerateRequest Request(int32_t n = 1, int32_t max_tokens = 3) {
    GenerateRequest request;
    request.request_id = "name";
    request.prompt = std::vector<TokenId>(10, 'x');
    request.n = n;
    request.sampling = MachineBench::Greedy();
    request.sampling.max_tokens = max_tokens;
    return request;
  }
  std::shared_ptr<SinkRecord> Add(GenerateRequest request) {
    auto record = std::make_shared<SinkRecord>();
    generations_.Add(kFirst, std::move(request), std::make_shared<RecordingSink>(record));
    return record;
  }
  // Runs one step in which every row draws `token`. Returns the number of tokens computed.
  int32_t Step(TokenId token) {
    SchedulerOutput plan = bench_.scheduler.Schedule();
    for (const SequenceId id : plan.admitted) generations_.OnAdmitted(id);
    for (const SequenceId id : plan.awaiting_kv) generations_.OnRoomForKv(id);
    std::vector<std::vector<absl::StatusOr<TokenId>>> drawn;
    for (ScheduledChunk& chunk : plan.chunks) {
      std::vector<TokenDraw> draws;
      if (chunk.samples) {
        chunk.draws_next = generations_.DescribeRow(chunk, draws).draws_next;
      }
      drawn.emplace_back(draws.size(), token);
    }
    bench_.scheduler.StepSubmitted(plan);
    bench_.scheduler.StepCollected(plan);
    bench_.scheduler.CommitStep(plan);
    for (size_t i = 0; i < plan.chunks.size(); ++i) {
      const ScheduledChunk& chunk = plan.chunks[i];
      generations_.OnComputed(chunk, MachineBench::Row(drawn[i], chunk.begin + chunk.count));
    }
    return plan.total_tokens;
  }
  uint64_t Transfer() const { return bench_.transport.receives.begin()->first; }
  void Deliver(const std::string& manifest) {
    bench_.transport.Deliver(Transfer(), std::vector<TokenId>(10, 'x'), manifest);
    generations_.OnReceived(*receives_.OnEvent(bench_.Poll()));
  }

  MachineBench bench_;
  absl::Status copies_;  // result of every copy
  HandoffReceives receives_{
      {.vocabulary = kFakeVocabulary}, &bench_.cache, &bench_.transport, [this] {
        return bench_.next_transfer_id++;
      }};
  Generations generations_{{.limits = MachineBench::Limits()},
                           bench_.parts(),
                           &bench_.admission,
                           &receives_,
                           &bench_.sampler,
                           [this](std::span<const BlockCopy>) { return copies_; }};
};

TEST_F(GenerationsTest, AnAnswerRunsFromItsPromptToItsLastToken) {
  const auto record = Add(Request());
  EXPECT_EQ(Step('a'), 10);
  EXPECT_EQ(Step('b'), 1);
  EXPECT_FALSE(record->ended());
  EXPECT_EQ(Step('c'), 1);
  ASSERT_TRUE(record->finish.has_value());
  EXPECT_EQ(record->text, "abc");
  EXPECT_EQ(record->finish->reason, FinishReason::kLength);
  EXPECT_EQ(record->finish->ledger.prefill_chunks, 1);
  EXPECT_EQ(record->finish->ledger.computed_tokens, 10);
}

TEST_F(GenerationsTest, ChoicesShareThePromptAndTheLastOneEndsTheRequest) {
  const auto record = Add(Request(/*n=*/3, /*max_tokens=*/2));
  EXPECT_EQ(Step('a'), 10) << "one sequence computes the prompt for all choices";
  EXPECT_EQ(Step('b'), 3);
  EXPECT_TRUE(record->last_finished);
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(record->Choice(i).text, "ab");
    EXPECT_EQ(record->Choice(i).finish->last, i == 2);
  }
}

TEST_F(GenerationsTest, AFailureEndsAllChoicesWithOneError) {
  const auto record = Add(Request(/*n=*/3));
  Step('a');
  generations_.Fail(kFirst + 1, absl::InternalError("a NaN"));
  generations_.Fail(kFirst + 2, absl::InternalError("again"));
  EXPECT_EQ(*record->error, absl::InternalError("a NaN"));
  EXPECT_EQ(generations_.failures(), 1);
}

TEST_F(GenerationsTest, CopiesThatFailEndTheRequest) {
  copies_ = absl::InternalError("the device is gone");
  const auto record = Add(Request(/*n=*/2));
  Step('a');
  EXPECT_EQ(*record->error, copies_);
}

TEST_F(GenerationsTest, ADeadlineEndsTheRequestAndIsReported) {
  GenerateRequest request = Request(/*n=*/2);
  request.timeout_ms = 1;
  const auto record = Add(request);
  EXPECT_EQ(generations_.CheckDeadlines(), bench_.clock.NowUs() + 1000);
  EXPECT_EQ(generations_.DemandOf(SequenceOf(kFirst)).deadline_us, bench_.clock.NowUs() + 1000);
  bench_.clock.AdvanceUs(1000);
  EXPECT_EQ(generations_.CheckDeadlines(), std::nullopt);
  EXPECT_TRUE(absl::IsDeadlineExceeded(*record->error));
  EXPECT_EQ(generations_.failures(), 1);
}

TEST_F(GenerationsTest, APoolThatCannotHoldAnAnswerCutsItOnceItHasBegun) {
  auto record = Add(Request());
  generations_.EndExhausted(kFirst);
  EXPECT_TRUE(absl::IsResourceExhausted(*record->error));
  record = Add(Request());
  Step('a');
  generations_.EndExhausted(kFirst);
  EXPECT_EQ(record->finish->reason, FinishReason::kLength);
  EXPECT_EQ(record->text, "a");
}

TEST_F(GenerationsTest, BlocksThatLandedBeforeAFailureAreNotRecomputed) {
  GenerateRequest request = Request(/*n=*/1, /*max_tokens=*/1);
  request.remote_prefill = true;
  const auto record = Add(request);
  ASSERT_TRUE(record->ticket.has_value());
  bench_.transport.FailReceive(Transfer(), absl::UnavailableError("gone"), 2,
                               std::vector<TokenId>(10, 'x'));
  generations_.OnReceived(*receives_.OnEvent(bench_.Poll()));
  EXPECT_EQ(Step('a'), 2) << "8 tokens landed";
  EXPECT_EQ(record->finish->ledger.kv_bytes, 1000);
}

TEST_F(GenerationsTest, AHandOffBringsTheFirstTokens) {
  GenerateRequest request = Request(/*n=*/2, /*max_tokens=*/2);
  request.remote_prefill = true;
  const auto record = Add(request);
  Deliver(EncodeManifest(MachineBench::Manifest(Bytes("pq"))));
  EXPECT_EQ(Step('z'), 2);
  EXPECT_EQ(record->Choice(0).text, "pz");
  EXPECT_EQ(record->Choice(1).text, "qz");
  EXPECT_TRUE(record->Choice(0).finish->ledger.prefilled_elsewhere);
}

TEST_F(GenerationsTest, AHandOffMayWaitForRoom) {
  const SequenceId other(100);
  const int32_t all = bench_.cache.num_blocks() * bench_.cache.options().block_size;
  ASSERT_TRUE(bench_.scheduler.AddWaitingForKv(MachineBench::Spec(other.value(), all - 8)).ok());
  GenerateRequest request = Request(/*n=*/2, /*max_tokens=*/2);
  request.remote_prefill = true;
  EXPECT_TRUE(absl::IsResourceExhausted(*Add(request)->error));
  request.queues_for_kv = true;
  const auto cancelled = Add(request);
  EXPECT_FALSE(cancelled->ended());
  generations_.Cancel(kFirst);
  EXPECT_TRUE(absl::IsCancelled(*cancelled->error));
  const auto record = Add(request);
  Step('-');
  EXPECT_FALSE(record->ticket.has_value());
  bench_.clock.AdvanceUs(500);
  bench_.scheduler.Finish(other, /*keep_cached=*/false);
  Step('-');
  ASSERT_TRUE(record->ticket.has_value());
  HandoffManifest manifest = MachineBench::Manifest(Bytes("pq"));
  manifest.prefill.queue_us = 30;
  Deliver(EncodeManifest(manifest));
  EXPECT_EQ(Step('z'), 2);
  EXPECT_EQ(record->Choice(0).text, "pz");
  EXPECT_EQ(record->Choice(0).finish->ledger.queue_us, 530);
  EXPECT_EQ(record->Choice(1).finish->ledger.queue_us, 530);
}

TEST_F(GenerationsTest, ADeadlineAlsoEndsAWaitForRoom) {
  const SequenceId other(100);
  const int32_t all = bench_.cache.num_blocks() * bench_.cache.options().block_size;
  ASSERT_TRUE(bench_.scheduler.AddWaitingForKv(MachineBench::Spec(other.value(), all - 8)).ok());
  GenerateRequest request = Request();
  request.remote_prefill = request.queues_for_kv = true;
  request.timeout_ms = 1;
  const auto late = Add(request);
  bench_.clock.AdvanceUs(1000);
  generations_.CheckDeadlines();
  EXPECT_TRUE(absl::IsDeadlineExceeded(*late->error)) << "the deadline counts in the queue";
  bench_.scheduler.Finish(other, /*keep_cached=*/false);
}

TEST_F(GenerationsTest, CancellingEndsTheWaitAndTheTransfer) {
  GenerateRequest request = Request();
  request.remote_prefill = true;
  const auto record = Add(request);
  generations_.Cancel(kFirst + 1);
  EXPECT_FALSE(record->ended()) << "not the first handle of a request";
  generations_.Cancel(kFirst);
  EXPECT_TRUE(absl::IsCancelled(*record->error));
  EXPECT_EQ(bench_.transport.receives.at(Transfer()).cancels, 1);
  Deliver("too late");
}

}  // namespace
}  // namespace baton
