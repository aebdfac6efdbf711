#include "loadtest/load_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

RequestRecord AnswerAt(int64_t intended_us, int64_t ttft_us, int64_t late_us = 0) {
  RequestRecord record;
  record.outcome = RequestOutcome::kWhole;
  record.intended_us = intended_us;
  record.sent_us = intended_us + late_us;
  record.first_content_us = intended_us + ttft_us;
  record.last_content_us = record.first_content_us + 20'000;
  record.end_us = record.last_content_us;
  record.gaps_us = {5'000, 15'000};
  record.output_tokens = 3;
  record.prompt_tokens = 10;
  return record;
}

TEST(LoadSummary, QuantilesAreOverWholeAnswersAndErrorsStandBeside) {
  LoadResult result;
  result.records = {AnswerAt(0, 100'000), AnswerAt(500'000, 300'000), AnswerAt(900'000, 200'000)};
  for (const char* kind : {"RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED", "INTERNAL"}) {
    RequestRecord broken = AnswerAt(1'000'000, 1);  // its times must not count
    broken.outcome = kind[0] == 'R' ? RequestOutcome::kRefused : RequestOutcome::kFailed;
    broken.error = kind;
    broken.error_message = "why";
    result.records.push_back(broken);
  }
  const LoadSummary summary = SummaryOf(result);
  EXPECT_EQ(summary.whole, 3);
  EXPECT_EQ(summary.refused, 2);
  EXPECT_EQ(summary.failed, 1);
  EXPECT_EQ(summary.requests(), 6);
  EXPECT_THAT(summary.errors, ElementsAre(Pair("INTERNAL", 1), Pair("RESOURCE_EXHAUSTED", 2)));
  EXPECT_EQ(summary.ttft_ms.count, 3);
  EXPECT_EQ(summary.ttft_ms.p50, 200);
  EXPECT_EQ(summary.ttft_ms.max, 300);
  EXPECT_EQ(summary.itl_ms.count, 6);
  EXPECT_EQ(summary.itl_ms.p50, 5);
  EXPECT_EQ(summary.itl_ms.p99, 15);
  EXPECT_EQ(summary.tpot_ms.p50, 10);
  EXPECT_EQ(summary.e2e_ms.max, 320);
  EXPECT_NEAR(summary.duration_s, 1.12, 1e-9) << "first intended send to last end";
  EXPECT_NEAR(summary.output_tokens_per_s, 9 / 1.12, 1e-9);
}

TEST(LoadSummary, GoodputCountsAnswersThatMeetTheObjectives) {
  LoadResult result;
  result.records = {AnswerAt(0, 100'000), AnswerAt(0, 300'000)};
  result.objectives.ttft_ms = 200;
  EXPECT_EQ(SummaryOf(result).good, 1);
}

TEST(LoadSummary, TheCachedShareNeedsATargetThatTellsIt) {
  LoadResult result;
  result.records = {AnswerAt(0, 1'000), AnswerAt(0, 1'000)};
  EXPECT_FALSE(SummaryOf(result).cached_token_share.has_value());
  result.records[0].cached_tokens = 0;
  result.records[1].cached_tokens = 5;
  EXPECT_EQ(SummaryOf(result).cached_token_share, 0.25);
}

TEST(LoadSummary, ARunIsInvalidOnlyIfLatenessExceedsBothLimits) {
  const auto reasons = [](int64_t ttft_us, int64_t late_us, bool closed) {
    LoadResult result;
    result.closed = closed;
    for (int i = 0; i < 50; ++i) result.records.push_back(AnswerAt(i, ttft_us, late_us));
    return SummaryOf(result).invalid_reasons;
  };
  EXPECT_THAT(reasons(100'000, 6'000, false), ElementsAre(HasSubstr("late_p99_ms is 6.000")));
  EXPECT_THAT(reasons(100'000, 5'000, false), IsEmpty()) << "5 % of 100 ms";
  EXPECT_THAT(reasons(10'000, 1'900, false), IsEmpty()) << "below 2 ms";
  EXPECT_THAT(reasons(100'000, 6'000, true), IsEmpty()) << "closed arrivals have no lateness";
}

TEST(LoadSummary, LatenessOfRequestsWithoutAnswersCounts) {
  LoadResult result;
  RequestRecord refused = AnswerAt(0, 1, 50'000);
  refused.outcome = RequestOutcome::kRefused;
  result.records = {refused};
  EXPECT_EQ(SummaryOf(result).invalid_reasons.size(), 1u);
}

TEST(LoadSummary, TheHarnessShareIsOfAllItsProcessors) {
  LoadResult result;
  result.cpu_seconds = 3;
  result.wall_seconds = 10;
  result.processors = 2;
  EXPECT_NEAR(SummaryOf(result).harness_cpu_share, 0.15, 1e-12);
  EXPECT_EQ(SummaryOf(result).duration_s, 0);
}

}  // namespace
}  // namespace baton
