#include "routing/throughput_model.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

FinishedRequest Local(uint32_t decode, int64_t us_a_token) {
  FinishedRequest request{.decode = WorkerNumber(decode), .prefill = std::nullopt};
  request.computed_tokens = 1000;
  request.prefill_us = 1000 * us_a_token;
  request.completion_tokens = 100;
  request.inter_token_us = 10 * us_a_token;
  request.decode_batch = 4;
  return request;
}

TEST(ThroughputModel, KeepsWorkersApart) {
  ThroughputModel book;
  for (int i = 0; i < 50; ++i) {
    book.Learn(Local(1, 10));
    book.Learn(Local(2, 100));
  }
  EXPECT_NEAR(book.Of(WorkerNumber(1)).PrefillUs(0, 1000), 10'000, 500);
  EXPECT_NEAR(book.Of(WorkerNumber(2)).PrefillUs(0, 1000), 100'000, 5000);
  EXPECT_NEAR(book.Of(WorkerNumber(1)).StepUs(4), 100, 5);
}

TEST(ThroughputModel, KnowsTheMeanTimeOfAPromptToken) {
  ThroughputModel book;
  for (int i = 0; i < 1000; ++i) book.Learn(Local(1, 10));
  EXPECT_NEAR(book.PromptTokensUs(500), 5000, 50);
  EXPECT_EQ(book.PromptTokensUs(0), 0);
}

TEST(ThroughputModel, ANewWorkerStartsWithTheFleetsAverage) {
  ThroughputModel book;
  for (int i = 0; i < 50; ++i) book.Learn(Local(1, 10));
  EXPECT_NEAR(book.Of(WorkerNumber(9)).PrefillUs(0, 1000), 10'000, 500);
  book.Learn(Local(9, 1000));  // its first request
  EXPECT_LT(book.Of(WorkerNumber(9)).PrefillUs(0, 1000), 15'000);
  for (int i = 0; i < 10; ++i) book.Learn(Local(9, 30));
  EXPECT_GT(book.Of(WorkerNumber(9)).PrefillUs(0, 1000), 20'000);
  EXPECT_NEAR(book.Of(WorkerNumber(1)).PrefillUs(0, 1000), 10'000, 500);
}

TEST(ThroughputModel, AWorkerThatWasMeasuredOnceFollowsTheFleet) {
  ThroughputModel book;
  book.Learn(Local(9, 10));  // the first request of all; the first guess was much slower
  EXPECT_GT(book.Of(WorkerNumber(9)).PrefillUs(0, 1000), 11'000);
  for (int i = 0; i < 200; ++i) book.Learn(Local(1, 10));
  EXPECT_NEAR(book.Of(WorkerNumber(9)).PrefillUs(0, 1000), 10'000, 500);
}

TEST(ThroughputModel, APrefillIsLearnedOfTheWorkerThatDidIt) {
  ThroughputModel book;
  FinishedRequest request = Local(1, 10);
  request.prefill = WorkerNumber(2);
  request.kv_bytes = 10 << 20;
  request.kv_transfer_us = 20'000;
  request.queue_us = 3000;
  request.first_token_us = 3000 + 10'000 + 20'000 + 7000;
  for (int i = 0; i < 100; ++i) {
    book.Learn(request);
    book.Learn(Local(3, 100));
  }
  EXPECT_NEAR(book.Of(WorkerNumber(2)).PrefillUs(0, 1000), 10'000, 500);
  EXPECT_EQ(book.Of(WorkerNumber(1)).observed(), 0);
  EXPECT_NEAR(book.Of(WorkerNumber(1)).TransferUs(10 << 20), 20'000, 1000);
  EXPECT_NEAR(book.Of(WorkerNumber(1)).HandOffUs(), 7000, 500);
}

TEST(ThroughputModel, APullTeachesItsFixedTimeAndItsBandwidth) {
  ThroughputModel book;
  const FinishedPull pull{
      .receiver = WorkerNumber(2), .us = 12'000, .kv_bytes = 10 << 20, .kv_transfer_us = 10'000};
  for (int i = 0; i < 100; ++i) book.Learn(pull);
  EXPECT_NEAR(book.Of(WorkerNumber(2)).TransferUs(10 << 20), 10'000, 500);
  EXPECT_NEAR(book.Of(WorkerNumber(2)).PullUs(), 2000, 500);
  EXPECT_NEAR(book.Of(WorkerNumber(7)).PullUs(), 2000, 500)
      << "estimate for a new worker of this fleet";
  for (int i = 0; i < 100; ++i) {  // pulls that time out
    book.Learn(FinishedPull{.receiver = WorkerNumber(2), .us = 30'000'000});
  }
  EXPECT_GT(book.Of(WorkerNumber(2)).PullUs(), 10'000);
  EXPECT_LE(book.Of(WorkerNumber(2)).PullUs(), 20'000);
}

TEST(ThroughputModel, ForgetsAWorkerThatIsGone) {
  ThroughputModel book;
  for (int i = 0; i < 50; ++i) book.Learn(Local(1, 10));
  book.Learn(Local(2, 1000));
  book.Forget(WorkerNumber(2));
  EXPECT_EQ(book.Of(WorkerNumber(2)).StepUs(1), book.Of(WorkerNumber(99)).StepUs(1));
}

TEST(ThroughputModel, MeansFollowRecentRequestsAndNotOneGiant) {
  ThroughputModel book;
  for (int i = 0; i < 500; ++i) book.Learn(Local(1, 10));
  EXPECT_NEAR(book.completion_tokens(), 100, 1);
  EXPECT_NEAR(book.prefill_us(), 10'000, 100);
  FinishedRequest giant = Local(1, 10);
  giant.completion_tokens = 1'000'000'000;
  book.Learn(giant);
  EXPECT_LT(book.completion_tokens(), 250);
}

TEST(ThroughputModel, AnAnswerOfFewTokensDoesNotChangeTheStepTime) {
  ThroughputModel book;
  const double before = book.Of(WorkerNumber(1)).StepUs(4);
  FinishedRequest request = Local(1, 10);
  request.completion_tokens = 2;
  book.Learn(request);
  EXPECT_EQ(book.Of(WorkerNumber(1)).StepUs(4), before);
}

}  // namespace
}  // namespace baton
