#include "router/grpc/request_ledger.h"

#include <gtest/gtest.h>

#include <limits>

namespace baton {
namespace {

v1::Finished Finished() {
  v1::Finished finished;
  finished.mutable_usage()->set_prompt_tokens(332);
  finished.mutable_usage()->set_completion_tokens(50);
  v1::Ledger& ledger = *finished.mutable_ledger();
  ledger.set_tokenize_us(5);
  ledger.set_first_token_us(1005);
  ledger.set_queue_us(7);
  ledger.set_prefill_us(800);
  ledger.set_computed_tokens(300);
  ledger.set_prefill_cached_tokens(32);
  ledger.set_decode_cached_tokens(16);
  ledger.set_kv_bytes(4096);
  ledger.set_kv_transfer_us(60);
  ledger.set_inter_token_us(9);
  ledger.set_total_us(2000);
  return finished;
}

RoutePlan Plan(std::optional<WorkerNumber> prefill) {
  return {.decode = WorkerNumber(1), .prefill = prefill};
}

TEST(RequestLedger, RoutingLearnsFromAPrefillWhereItWas) {
  const FinishedRequest remote =
      FinishedFromLedger(Plan(WorkerNumber(2)), 3, /*prefill_reported=*/true, Finished());
  EXPECT_EQ(remote.prefill, WorkerNumber(2));
  EXPECT_EQ(remote.cached_tokens, 32);
  EXPECT_EQ(remote.computed_tokens, 300);
  EXPECT_EQ(remote.prefill_us, 800);
  EXPECT_EQ(remote.queue_us, 7);
  EXPECT_EQ(remote.kv_bytes, 4096);
  EXPECT_EQ(remote.kv_transfer_us, 60);
  EXPECT_EQ(remote.first_token_us, 1000);
  EXPECT_EQ(remote.completion_tokens, 50);
  EXPECT_EQ(remote.inter_token_us, 9);
  EXPECT_EQ(remote.decode_batch, 3);
  const FinishedRequest local = FinishedFromLedger(Plan(std::nullopt), 3, false, Finished());
  EXPECT_EQ(local.prefill, std::nullopt);
  EXPECT_EQ(local.cached_tokens, 16);
  EXPECT_EQ(local.prefill_us, 800);
}

TEST(RequestLedger, EachChoiceHasTimesOfItsOwn) {
  RequestLedgerBuilder builder(1000);
  builder.Tokenized(1100);
  builder.TokensArrived(2000, 1, 0);
  builder.TokensArrived(2500, 1, 1);
  builder.TokensArrived(2600, 1, 0);
  builder.TokensArrived(3500, 2, 1);
  v1::Finished finished;
  finished.set_choice(1);
  builder.Complete(4000, "", "decode", finished);
  EXPECT_EQ(finished.ledger().first_token_us(), 1500);
  EXPECT_EQ(finished.ledger().inter_token_us(), 500);
  finished.set_choice(0);
  builder.Complete(4000, "", "decode", finished);
  EXPECT_EQ(finished.ledger().first_token_us(), 1000);
  EXPECT_EQ(finished.ledger().inter_token_us(), 600);
}

// A worker's false figures must not reach the throughput model.
TEST(RequestLedger, RoutingLearnsNothingBeyondTheRequestItself) {
  v1::Finished finished = Finished();
  v1::Ledger& ledger = *finished.mutable_ledger();
  ledger.set_queue_us(std::numeric_limits<int64_t>::min());
  ledger.set_prefill_us(std::numeric_limits<int64_t>::max());
  ledger.set_kv_transfer_us(-1);
  ledger.set_kv_bytes(std::numeric_limits<int64_t>::max());
  ledger.set_computed_tokens(std::numeric_limits<int32_t>::max());
  ledger.set_prefill_cached_tokens(-5);
  const FinishedRequest odd = FinishedFromLedger(Plan(WorkerNumber(2)), 3, true, finished);
  EXPECT_EQ(odd.queue_us, 0);
  EXPECT_EQ(odd.prefill_us, 2000);
  EXPECT_EQ(odd.kv_transfer_us, 0);
  EXPECT_EQ(odd.kv_bytes, int64_t{382} << 24);
  EXPECT_EQ(odd.computed_tokens, 382);
  EXPECT_EQ(odd.cached_tokens, 0);
}

TEST(RequestLedger, BytesOfPulledChunksAreAddedToTheWorkersFigure) {
  RequestLedgerBuilder builder(0);
  builder.Pulled(400, 48, "decode-0", /*chunk_bytes=*/1000);
  v1::Finished finished;
  finished.mutable_ledger()->set_chunk_pulled_bytes(5);
  builder.Complete(1, "", "decode-1", finished);
  EXPECT_EQ(finished.ledger().chunk_pulled_bytes(), 1005);
  finished.mutable_ledger()->set_chunk_pulled_bytes(std::numeric_limits<int64_t>::max());
  builder.Complete(1, "", "decode-1", finished);
  EXPECT_EQ(finished.ledger().chunk_pulled_bytes(), (int64_t{1} << 60) + 1000);
  builder.Pulled(300, 48, "decode-0");  // another attempt pulled an ordinary prefix
  finished.mutable_ledger()->set_chunk_pulled_bytes(-5);
  builder.Complete(1, "", "decode-1", finished);
  EXPECT_EQ(finished.ledger().chunk_pulled_bytes(), 0);
}

TEST(RequestLedger, APullIsReportedSeparatelyFromRoutingAndHandOff) {
  RequestLedgerBuilder builder(1000);
  builder.Tokenized(1005);
  builder.Pulled(400, 48, "decode-0");
  builder.Routed(1505);
  builder.TokensArrived(2005, 1);
  v1::Finished finished = Finished();
  v1::PrefillResponse report;
  report.set_kv_exposed_us(77);
  builder.PrefillReported(report);
  builder.Complete(3000, "prefill-0", "decode-1", finished);
  EXPECT_EQ(finished.ledger().kv_exposed_us(), 77);
  EXPECT_EQ(finished.ledger().pull_us(), 400);
  EXPECT_EQ(finished.ledger().pulled_tokens(), 48);
  EXPECT_EQ(finished.ledger().pull_source(), "decode-0");
  EXPECT_EQ(finished.ledger().route_us(), 100);
  EXPECT_EQ(FinishedFromLedger(Plan(WorkerNumber(2)), 1, true, finished).first_token_us, 600);
  builder.Pulled(300, 0, "decode-0");  // another attempt, and nothing was pulled
  builder.Complete(3000, "prefill-0", "decode-1", finished);
  EXPECT_EQ(finished.ledger().pull_us(), 300);
  EXPECT_EQ(finished.ledger().pull_source(), "");
}

TEST(RequestLedger, QueueingContainsTheWaitForRoomOnTheDecodeWorker) {
  RequestLedgerBuilder builder(1000);
  builder.TokensArrived(2605, 1);
  v1::Finished finished = Finished();
  v1::PrefillResponse report;
  report.set_queue_us(30);
  builder.PrefillReported(report);
  finished.mutable_ledger()->set_queue_us(30 + 700);
  builder.Complete(3000, "prefill-0", "decode-1", finished);
  EXPECT_EQ(finished.ledger().queue_us(), 730);
  finished.mutable_ledger()->set_queue_us(0);
  builder.Complete(3000, "prefill-0", "decode-1", finished);
  EXPECT_EQ(finished.ledger().queue_us(), 30);
}

TEST(RequestLedger, RoutingLearnsNothingBeyondThePullItself) {
  v1::PulledPrefix told;
  told.set_kv_bytes(std::numeric_limits<int64_t>::max());
  told.set_kv_transfer_us(std::numeric_limits<int64_t>::max());
  const FinishedPull most = FinishedFromPull(WorkerNumber(2), 500, 16, told);
  EXPECT_LE(most.kv_bytes, int64_t{16} << 24);
  EXPECT_EQ(most.kv_transfer_us, 500);
  told.set_kv_bytes(-1);
  told.set_kv_transfer_us(-1);
  const FinishedPull least = FinishedFromPull(WorkerNumber(2), 500, 16, told);
  EXPECT_EQ(least.kv_bytes, 0);
  EXPECT_EQ(least.kv_transfer_us, 0);
}

TEST(RequestLedger, RoutingLearnsNothingOfNegativeCounts) {
  v1::Finished finished = Finished();
  finished.mutable_usage()->set_prompt_tokens(std::numeric_limits<int32_t>::min());
  finished.mutable_usage()->set_completion_tokens(-1);
  finished.mutable_ledger()->set_total_us(-1);
  const FinishedRequest learnt = FinishedFromLedger(Plan(std::nullopt), 3, true, finished);
  EXPECT_EQ(learnt.computed_tokens, 0);
  EXPECT_EQ(learnt.kv_bytes, 0);
  EXPECT_EQ(learnt.prefill_us, 0);
}

TEST(RequestLedger, RoutingLearnsNothingFromAnUnreportedPrefill) {
  const FinishedRequest lost = FinishedFromLedger(Plan(WorkerNumber(2)), 3, false, Finished());
  EXPECT_EQ(lost.prefill_us, 0);
  EXPECT_EQ(lost.kv_bytes, 0);
  EXPECT_EQ(lost.inter_token_us, 9);
}

TEST(RequestLedger, RoutingLearnsNoTimesOfARequestThatWasPreempted) {
  v1::Finished finished = Finished();
  finished.mutable_ledger()->set_preemptions(1);
  const FinishedRequest request = FinishedFromLedger(Plan(std::nullopt), 3, false, finished);
  EXPECT_EQ(request.prefill_us, 0);
  EXPECT_EQ(request.inter_token_us, 0);
  EXPECT_EQ(request.completion_tokens, 50);
}

}  // namespace
}  // namespace baton
