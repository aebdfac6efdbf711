#include "router/request_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr int64_t kReceivedUs = 1'000'000;

class RequestMeterTest : public ::testing::Test {
 protected:
  RequestMeter Meter(Endpoint endpoint = Endpoint::kGenerate) {
    return RequestMeter(&metrics_, endpoint, kReceivedUs);
  }
  static RoutePlan Plan(int64_t first_token_us = 0, int64_t held_tokens = 0) {
    return {.decode = WorkerNumber(1),
            .prefill = std::nullopt,
            .first_token_us = first_token_us,
            .held_tokens = held_tokens};
  }
  int64_t Prompt(PromptSource source) { return metrics_.Cells(Metric::kPromptTokens, source); }
  // Sum of a histogram in units, and its observations.
  std::pair<double, uint64_t> Histogram(Metric metric) const {
    for (const MetricFamily& family : metrics_.Read()) {
      if (family.declaration->id != metric) continue;
      return {family.samples[0].sum, family.samples[0].cumulative.back()};
    }
    return {-1, 0};
  }

  MetricSet metrics_{MetricPrograms::kRouters};
};

using ::testing::Pair;

TEST_F(RequestMeterTest, CountsTheTimesOfAnAnswer) {
  RequestMeter meter = Meter();
  meter.Tokenized(kReceivedUs + 2'000);
  meter.Routed(Plan(), kReceivedUs + 3'000);
  meter.TokensArrived(kReceivedUs + 50'000, 1, 0);
  meter.TokensArrived(kReceivedUs + 60'000, 1, 0);
  meter.TokensArrived(kReceivedUs + 90'000, 3, 0);  // 30 ms for three tokens
  EXPECT_EQ(meter.first_token_us(), 50'000);
  meter.Ended(absl::OkStatus(), kReceivedUs + 100'000, {.prompt_tokens = 8, .computed_tokens = 8});
  EXPECT_THAT(Histogram(Metric::kTokenizeSeconds), Pair(0.002, 1));
  EXPECT_THAT(Histogram(Metric::kTimeToFirstToken), Pair(0.05, 1));
  EXPECT_THAT(Histogram(Metric::kInterToken), Pair(0.04, 4));
  EXPECT_THAT(Histogram(Metric::kRequestSeconds), Pair(0.1, 1));
  EXPECT_EQ(metrics_.Cells(Metric::kOutputTokens), 5);
  EXPECT_EQ(metrics_.Cells(Metric::kRequests, Endpoint::kGenerate, absl::StatusCode::kOk), 1);
}

TEST_F(RequestMeterTest, TheTimeBetweenTokensIsThatOfOneChoice) {
  RequestMeter meter = Meter();
  meter.TokensArrived(kReceivedUs + 10'000, 1, 0);
  meter.TokensArrived(kReceivedUs + 11'000, 1, 1);
  EXPECT_THAT(Histogram(Metric::kInterToken), Pair(0, 0));
  meter.TokensArrived(kReceivedUs + 20'000, 1, 0);
  meter.TokensArrived(kReceivedUs + 21'000, 1, 1);
  EXPECT_THAT(Histogram(Metric::kInterToken), Pair(0.02, 2));
  EXPECT_THAT(Histogram(Metric::kTimeToFirstToken), Pair(0.01, 1)) << "once for a request";
}

TEST_F(RequestMeterTest, ComparesTheEstimateWithTheMeasuredTime) {
  RequestMeter meter = Meter();
  meter.Routed(Plan(/*first_token_us=*/20'000), kReceivedUs + 10'000);
  meter.TokensArrived(kReceivedUs + 50'000, 1, 0);  // 40 ms after the route
  EXPECT_THAT(Histogram(Metric::kRouteEstimateRatio), Pair(0.5, 1));
}

TEST_F(RequestMeterTest, DoesNotCompareEstimatesOfRequestsThatMoved) {
  RequestMeter meter = Meter();
  meter.Routed(Plan(20'000), kReceivedUs + 10'000);
  meter.Routed(Plan(20'000), kReceivedUs + 20'000);
  meter.TokensArrived(kReceivedUs + 50'000, 1, 0);
  EXPECT_THAT(Histogram(Metric::kRouteEstimateRatio), Pair(0, 0));
  EXPECT_EQ(metrics_.Cells(Metric::kRoutes, PrefillPlace::kDecodeWorker), 2);
  RequestMeter without = Meter();  // no estimate
  without.Routed(Plan(0), kReceivedUs + 10'000);
  without.TokensArrived(kReceivedUs + 50'000, 1, 0);
  EXPECT_THAT(Histogram(Metric::kRouteEstimateRatio), Pair(0, 0));
}

TEST_F(RequestMeterTest, DividesThePromptAmongItsSources) {
  RequestMeter local = Meter();
  local.Routed(Plan(), kReceivedUs);
  local.Ended(absl::OkStatus(), kReceivedUs + 1,
              {.prompt_tokens = 100,
               .computed_tokens = 30,
               .pulled_tokens = 20,
               .decode_cached_tokens = 70,  // the pulled ones are among them
               .prefilled_elsewhere = false});
  EXPECT_EQ(Prompt(PromptSource::kComputed), 30);
  EXPECT_EQ(Prompt(PromptSource::kPulled), 20);
  EXPECT_EQ(Prompt(PromptSource::kCached), 50);
  EXPECT_EQ(Prompt(PromptSource::kTransferred), 0);
  RequestMeter remote = Meter();
  remote.Routed(Plan(), kReceivedUs);
  remote.Ended(absl::OkStatus(), kReceivedUs + 1,
               {.prompt_tokens = 100,
                .computed_tokens = 40,
                .pulled_tokens = 0,
                .decode_cached_tokens = 16,
                .prefilled_elsewhere = true});
  EXPECT_EQ(Prompt(PromptSource::kComputed), 70);
  EXPECT_EQ(Prompt(PromptSource::kCached), 66);
  EXPECT_EQ(Prompt(PromptSource::kTransferred), 44);
}

TEST_F(RequestMeterTest, ThePartsOfAPromptAlwaysAddUpToIt) {
  for (const PromptFigures& told :
       {PromptFigures{.prompt_tokens = 50, .computed_tokens = 900},
        PromptFigures{.prompt_tokens = 50, .computed_tokens = -3, .pulled_tokens = 80},
        PromptFigures{.prompt_tokens = 50,
        .computed_tokens = 40,
        .pulled_tokens = 40,
        .decode_cached_tokens = -1,
        .prefilled_elsewhere = true},
        PromptFigures{.prompt_tokens = 50}}) {
    const auto sum = [this] {
      int64_t tokens = 0;
      for (size_t i = 0; i < kPromptSourceNames.size(); ++i) {
        tokens += Prompt(static_cast<PromptSource>(i));
      }
      return tokens;
    };
    const int64_t before = sum();
    RequestMeter meter = Meter();
    meter.Ended(absl::OkStatus(), kReceivedUs + 1, told);
    EXPECT_EQ(sum() - before, 50);
  }
}

TEST_F(RequestMeterTest, AComputedTokenIsAvoidableIfAnotherWorkerHadIt) {
  const auto avoidable = [this](int64_t held, const PromptFigures& prompt) {
    const int64_t before = metrics_.Cells(Metric::kAvoidablePromptTokens);
    RequestMeter meter = Meter();
    meter.Routed(Plan(0, held), kReceivedUs);
    meter.Ended(absl::OkStatus(), kReceivedUs + 1, prompt);
    return metrics_.Cells(Metric::kAvoidablePromptTokens) - before;
  };
  // All of the prompt was computed, although a worker had 64 tokens of it.
  EXPECT_EQ(avoidable(64, {.prompt_tokens = 100, .computed_tokens = 100}), 64);
  // Of these, 48 were used.
  EXPECT_EQ(avoidable(64, {.prompt_tokens = 100, .computed_tokens = 52}), 16);
  // All of them were used.
  EXPECT_EQ(avoidable(64, {.prompt_tokens = 100, .computed_tokens = 36}), 0);
  EXPECT_EQ(avoidable(0, {.prompt_tokens = 100, .computed_tokens = 100}), 0);
  // Never more than was computed.
  EXPECT_EQ(avoidable(500, {.prompt_tokens = 100, .computed_tokens = 100}), 100);
}

TEST_F(RequestMeterTest, RefusalsCountByReason) {
  const auto refused = [this](Refusal reason) { return metrics_.Cells(Metric::kRefused, reason); };
  Meter().Ended(absl::InvalidArgumentError(""), kReceivedUs, {});
  EXPECT_EQ(refused(Refusal::kInvalid), 1);
  Meter().Ended(absl::ResourceExhaustedError("the text queue is full"), kReceivedUs, {});
  EXPECT_EQ(refused(Refusal::kLimit), 1);
  RequestMeter full = Meter();
  full.Routed(Plan(), kReceivedUs);
  full.Ended(absl::ResourceExhaustedError("the pool is full"), kReceivedUs, {});
  EXPECT_EQ(refused(Refusal::kNoRoom), 1);
  Meter().Ended(absl::UnavailableError("no worker"), kReceivedUs, {});
  EXPECT_EQ(refused(Refusal::kNoWorker), 1);
  RequestMeter ending = Meter();
  ending.ShutsDown();
  ending.Ended(absl::UnavailableError("shutting down"), kReceivedUs, {});
  EXPECT_EQ(refused(Refusal::kShutdown), 1);
  RequestMeter::Refused(&metrics_, Endpoint::kCompletions, absl::ResourceExhaustedError(""),
                        Refusal::kOverload);
  EXPECT_EQ(refused(Refusal::kOverload), 1);
  EXPECT_EQ(metrics_.Cells(Metric::kRequests, Endpoint::kCompletions,
                           absl::StatusCode::kResourceExhausted),
            1);
}

TEST_F(RequestMeterTest, CancellationsAndFailuresInAnAnswerAreNoRefusals) {
  Meter().Ended(absl::CancelledError(""), kReceivedUs, {});
  Meter().Ended(absl::DeadlineExceededError(""), kReceivedUs, {});
  RequestMeter begun = Meter();
  begun.TokensArrived(kReceivedUs + 1, 1, 0);
  begun.Ended(absl::UnavailableError("the worker is gone"), kReceivedUs + 2, {});
  for (size_t i = 0; i < kRefusalNames.size(); ++i) {
    EXPECT_EQ(metrics_.Cells(Metric::kRefused, i), 0) << kRefusalNames[i];
  }
  EXPECT_EQ(metrics_.Cells(Metric::kRequests, Endpoint::kGenerate, absl::StatusCode::kCancelled),
            1);
  EXPECT_EQ(Histogram(Metric::kRequestSeconds).second, 0) << "no answer is complete";
}

TEST_F(RequestMeterTest, WithoutMetricsItOnlyKnowsTheFirstToken) {
  RequestMeter meter(nullptr, Endpoint::kGenerate, kReceivedUs);
  meter.Tokenized(kReceivedUs + 1);
  meter.Routed(Plan(), kReceivedUs + 2);
  meter.TokensArrived(kReceivedUs + 7, 1, 0);
  meter.PullEnded(PullOutcomeLabel::kPulled);
  meter.WorkerLost(PrefillPlace::kDecodeWorker);
  meter.Ended(absl::OkStatus(), kReceivedUs + 9, {});
  EXPECT_EQ(meter.first_token_us(), 7);
}

}  // namespace
}  // namespace baton
