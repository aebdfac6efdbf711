#include "worker_rpc/work_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tracing/recorded_spans.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kRouter[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
constexpr char kUnsampled[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

class WorkTraceTest : public ::testing::Test {
 protected:
  WorkTrace Arrived(std::string_view parent = kRouter) { return {&tracer_, parent, 1000}; }
  void ExpectTimes(std::string_view name, int64_t begin_us, int64_t end_us) {
    const Span* const span = recorded_.Find(name);
    ASSERT_NE(span, nullptr) << name;
    EXPECT_EQ(span->begin_us, begin_us) << name;
    EXPECT_EQ(span->end_us, end_us) << name;
  }

  RecordedSpans recorded_;
  const Tracer tracer_ = recorded_.TracerOf();
};

FinishInfo Finish(const RequestLedger& ledger, int32_t tokens = 5) {
  FinishInfo info;
  info.completion_tokens = tokens;
  info.ledger = ledger;
  return info;
}

TEST_F(WorkTraceTest, AnAnswerThatWasPrefilledHereHasQueuePrefillAndDecode) {
  WorkTrace trace = Arrived();
  trace.TokensArrived(1900);
  trace.TokensArrived(2000);
  RequestLedger ledger;
  ledger.queue_us = 200;
  ledger.prefill_us = 600;
  ledger.cached_tokens = 16;
  ledger.computed_tokens = 40;
  ledger.preemptions = 1;
  trace.ChoiceFinished(Finish(ledger));
  trace.ChoiceFinished(Finish(ledger, 7));
  trace.DecodeEnded(absl::OkStatus(), 3000);
  ASSERT_THAT(recorded_.Names(), ElementsAre("queue", "prefill", "decode"));
  ExpectTimes("queue", 1000, 1200);
  ExpectTimes("prefill", 1200, 1800);
  ExpectTimes("decode", 1900, 3000);
  const TraceContext router = *ParseTraceParent(kRouter);
  for (const Span& span : recorded_.spans) {
    EXPECT_EQ(span.context.trace, router.trace);
    EXPECT_EQ(span.parent, router.span);
    EXPECT_EQ(span.code, absl::StatusCode::kOk);
  }
  EXPECT_EQ(NumberOf(*recorded_.Find("prefill"), "baton.cached_tokens"), 16);
  EXPECT_EQ(NumberOf(*recorded_.Find("prefill"), "baton.computed_tokens"), 40);
  EXPECT_EQ(NumberOf(*recorded_.Find("decode"), "baton.output_tokens"), 12);
  EXPECT_EQ(NumberOf(*recorded_.Find("decode"), "baton.preemptions"), 1);
}

TEST_F(WorkTraceTest, AnAnswerThatWasPrefilledElsewhereHasTransferAndDecode) {
  WorkTrace trace = Arrived();
  trace.TokensArrived(1900);
  RequestLedger ledger;
  ledger.queue_us = 50'000;  // the prefill worker's
  ledger.prefill_us = 60'000;
  ledger.prefilled_elsewhere = true;
  ledger.kv_bytes = 4096;
  ledger.kv_transfer_us = 300;
  ledger.admit_us = 40;
  trace.ChoiceFinished(Finish(ledger));
  trace.DecodeEnded(absl::OkStatus(), 3000);
  ASSERT_THAT(recorded_.Names(), ElementsAre("transfer", "decode"));
  ExpectTimes("transfer", 1560, 1860);
  ExpectTimes("decode", 1900, 3000);
  EXPECT_EQ(NumberOf(*recorded_.Find("transfer"), "baton.kv_bytes"), 4096);
}

TEST_F(WorkTraceTest, PartsLieWithinTheCallWhateverTheLedgerSays) {
  WorkTrace trace = Arrived();
  trace.TokensArrived(1900);
  RequestLedger ledger;
  ledger.queue_us = 1'000'000;
  ledger.prefill_us = 1'000'000;
  trace.ChoiceFinished(Finish(ledger));
  trace.DecodeEnded(absl::OkStatus(), 3000);
  ExpectTimes("queue", 1000, 1900);
  ExpectTimes("prefill", 1900, 1900);
  WorkTrace other = Arrived();
  other.TokensArrived(1100);
  ledger.prefilled_elsewhere = true;
  ledger.kv_bytes = 1;
  ledger.kv_transfer_us = 1'000'000;
  ledger.admit_us = 500;
  other.ChoiceFinished(Finish(ledger));
  other.DecodeEnded(absl::OkStatus(), 3000);
  ExpectTimes("transfer", 1000, 1000);
}

TEST_F(WorkTraceTest, AFailureHasOneSpanWithItsCode) {
  Arrived().DecodeEnded(absl::ResourceExhaustedError("full"), 1500);
  ASSERT_THAT(recorded_.Names(), ElementsAre("prefill"));
  EXPECT_EQ(recorded_.spans[0].code, absl::StatusCode::kResourceExhausted);
  ExpectTimes("prefill", 1000, 1500);
  WorkTrace trace = Arrived();
  trace.TokensArrived(2000);
  trace.DecodeEnded(absl::CancelledError("the client left"), 2500);
  ASSERT_THAT(recorded_.Names(), ElementsAre("prefill", "decode"));
  EXPECT_EQ(recorded_.spans[1].code, absl::StatusCode::kCancelled);
  ExpectTimes("decode", 2000, 2500);
}

TEST_F(WorkTraceTest, APromptForAnotherWorkerHasQueueAndPrefill) {
  PrefillResult result;
  result.queue_us = 100;
  result.prefill_us = 700;
  result.cached_tokens = 3;
  result.computed_tokens = 9;
  Arrived().PrefillEnded(result, 2500);
  ASSERT_THAT(recorded_.Names(), ElementsAre("queue", "prefill"));
  ExpectTimes("queue", 1000, 1100);
  ExpectTimes("prefill", 1100, 1800);
  Arrived().PrefillEnded(absl::CancelledError("gone"), 2500);
  EXPECT_EQ(recorded_.spans.back().code, absl::StatusCode::kCancelled);
}

TEST_F(WorkTraceTest, RecordsNothingOfATraceThatIsNotSampled) {
  WorkTrace trace = Arrived(kUnsampled);
  trace.TokensArrived(1900);
  trace.ChoiceFinished(Finish({}));
  trace.DecodeEnded(absl::OkStatus(), 3000);
  Arrived(kUnsampled).PrefillEnded(PrefillResult(), 2500);
  WorkTrace off(nullptr, kRouter, 1000);
  off.TokensArrived(1900);
  off.ChoiceFinished(Finish({}));
  off.DecodeEnded(absl::OkStatus(), 3000);
  EXPECT_THAT(recorded_.spans, IsEmpty());
}

TEST_F(WorkTraceTest, ACallOfAnOlderRouterIsATraceOfItsOwn) {
  WorkTrace trace = Arrived("");
  trace.TokensArrived(1900);
  trace.ChoiceFinished(Finish({}));
  trace.DecodeEnded(absl::OkStatus(), 3000);
  ASSERT_THAT(recorded_.Names(), ElementsAre("queue", "prefill", "decode"));
  for (const Span& span : recorded_.spans) {
    EXPECT_EQ(span.parent, 0u);
    EXPECT_EQ(span.context.trace, recorded_.spans[0].context.trace);
  }
}

}  // namespace
}  // namespace baton
