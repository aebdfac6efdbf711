#include "metrics/metric_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

const MetricFamily* Find(const std::vector<MetricFamily>& families, Metric metric) {
  for (const MetricFamily& family : families) {
    if (family.declaration->id == metric) return &family;
  }
  return nullptr;
}

TEST(MetricSet, EverySeriesIsThereFromTheStartAndZero) {
  for (const MetricPrograms programs : {MetricPrograms::kRouters, MetricPrograms::kWorkers}) {
    const MetricSet set(programs);
    const std::vector<MetricFamily> families = set.Read();
    for (const MetricDeclaration& metric : MetricTable()) {
      SCOPED_TRACE(std::string(metric.name));
      const MetricPrograms having = ProgramsOf(metric.id);
      const bool has = having == MetricPrograms::kAll || having == programs;
      const MetricFamily* const family = Find(families, metric.id);
      EXPECT_EQ(family != nullptr, has && !metric.is_info());
      if (family == nullptr) continue;
      size_t expected = 1;
      for (const MetricLabel& label : metric.labels) {
        expected *= std::max<size_t>(1, label.values.size());
      }
      EXPECT_EQ(family->samples.size(), expected);
      for (const MetricSample& sample : family->samples) {
        EXPECT_EQ(sample.value, 0);
        EXPECT_EQ(sample.sum, 0);
        EXPECT_FALSE(std::isnan(sample.value) || std::isnan(sample.sum));
        EXPECT_EQ(sample.cumulative.size(), metric.buckets.empty() ? 0 : metric.buckets.size() + 1);
        for (const uint64_t count : sample.cumulative) EXPECT_EQ(count, 0);
      }
    }
  }
}

TEST(MetricSet, ACounterCountsForItsLabelsAlone) {
  MetricSet set(MetricPrograms::kRouters);
  set.Add(Metric::kRequests, 2, Endpoint::kCompletions, absl::StatusCode::kUnavailable);
  set.Add(Metric::kRequests, 1, Endpoint::kGenerate, absl::StatusCode::kOk);
  set.Add(Metric::kRequests, 1, Endpoint::kGenerate, absl::StatusCode::kOk);
  const std::vector<MetricFamily> families = set.Read();
  double total = 0;
  for (const MetricSample& sample : Find(families, Metric::kRequests)->samples) {
    total += sample.value;
    if (sample.value == 0) continue;
    const bool first = sample.labels[0].second == "generate";
    EXPECT_EQ(sample.value, 2);
    EXPECT_THAT(sample.labels, ElementsAre(Pair("endpoint", first ? "generate" : "completions"),
                                           Pair("code", first ? "ok" : "unavailable")));
  }
  EXPECT_EQ(total, 4);
}

TEST(MetricSet, SecondsAreCountedInMicrosecondsAndRatiosInMillionths) {
  MetricSet set(MetricPrograms::kWorkers);
  set.Set(Metric::kWorkerBacklogSeconds, 1'500'000);
  set.Set(Metric::kKvUsedRatio, 250'000);
  set.Set(Metric::kWorkerBacklogTokens, 77);
  const std::vector<MetricFamily> families = set.Read();
  EXPECT_EQ(Find(families, Metric::kWorkerBacklogSeconds)->samples[0].value, 1.5);
  EXPECT_EQ(Find(families, Metric::kKvUsedRatio)->samples[0].value, 0.25);
  EXPECT_EQ(Find(families, Metric::kWorkerBacklogTokens)->samples[0].value, 77);
  EXPECT_EQ(set.Cells(Metric::kWorkerBacklogTokens), 77);
}

TEST(MetricSet, AnObservationCountsInTheBucketsThatAreAtLeastAsLarge) {
  MetricSet set(MetricPrograms::kRouters);
  const std::span<const int64_t> bounds = DeclarationOf(Metric::kTimeToFirstToken).buckets;
  set.Observe(Metric::kTimeToFirstToken, bounds[0]);           // a bound is part of its bucket
  set.Observe(Metric::kTimeToFirstToken, bounds[0] + 1);       // the second bucket
  set.ObserveTimes(Metric::kTimeToFirstToken, bounds[2], 3);   // the third, three times
  set.Observe(Metric::kTimeToFirstToken, bounds.back() * 10);  // larger than all
  const std::vector<MetricFamily> families = set.Read();
  const MetricSample& sample = Find(families, Metric::kTimeToFirstToken)->samples[0];
  EXPECT_EQ(sample.cumulative[0], 1);
  EXPECT_EQ(sample.cumulative[1], 2);
  EXPECT_EQ(sample.cumulative[2], 5);
  EXPECT_EQ(sample.cumulative[bounds.size() - 1], 5);
  EXPECT_EQ(sample.cumulative[bounds.size()], 6);
  EXPECT_DOUBLE_EQ(
      sample.sum,
      static_cast<double>(2 * bounds[0] + 1 + 3 * bounds[2] + 10 * bounds.back()) / 1e6);
}

TEST(MetricSet, SeriesOfAHistogramDoNotShareCells) {
  MetricSet set(MetricPrograms::kWorkers);
  set.Observe(Metric::kWorkerStepSeconds, 1, StepWork::kPrefill);
  set.ObserveTimes(Metric::kWorkerStepSeconds, 1'000'000'000, 2, StepWork::kMixed);
  const std::vector<MetricFamily> families = set.Read();
  const MetricFamily& steps = *Find(families, Metric::kWorkerStepSeconds);
  ASSERT_EQ(steps.samples.size(), 3);
  EXPECT_EQ(steps.samples[0].cumulative.back(), 1);
  EXPECT_EQ(steps.samples[1].cumulative.back(), 0);
  EXPECT_EQ(steps.samples[1].sum, 0);
  EXPECT_EQ(steps.samples[2].cumulative.front(), 0);
  EXPECT_EQ(steps.samples[2].cumulative.back(), 2);
}

TEST(MetricSet, AnInfoMetricHasTheValueOneAndTheLabelsThatWereSetLast) {
  MetricSet set(MetricPrograms::kWorkers);
  set.SetInfo(Metric::kCacheConfigInfo, {"16", "100"});
  set.SetInfo(Metric::kCacheConfigInfo, {"16", "200"});
  const std::vector<MetricFamily> families = set.Read();
  const MetricFamily& info = *Find(families, Metric::kCacheConfigInfo);
  ASSERT_EQ(info.samples.size(), 1);
  EXPECT_EQ(info.samples[0].value, 1);
  EXPECT_THAT(info.samples[0].labels,
              ElementsAre(Pair("block_size", "16"), Pair("num_blocks", "200")));
}

TEST(MetricSet, CountsNothingTwiceAndLosesNothingWhenThreadsCountAndRead) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 5000;
  MetricSet set(MetricPrograms::kRouters);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&set, i] {
      for (int round = 0; round < kRounds; ++round) {
        set.Add(Metric::kOutputTokens, 1);
        set.Observe(Metric::kInterToken, (round % 20) * 100);
        set.Add(Metric::kRequests, 1, static_cast<Endpoint>(i % 3), absl::StatusCode::kOk);
      }
    });
  }
  // A reader sees counters that only rise, and a histogram's buckets that never fall.
  double last = 0;
  uint64_t last_count = 0;
  for (int i = 0; i < 50; ++i) {
    const std::vector<MetricFamily> families = set.Read();
    const double tokens = Find(families, Metric::kOutputTokens)->samples[0].value;
    const MetricSample& gaps = Find(families, Metric::kInterToken)->samples[0];
    EXPECT_GE(tokens, last);
    EXPECT_GE(gaps.cumulative.back(), last_count);
    EXPECT_TRUE(std::is_sorted(gaps.cumulative.begin(), gaps.cumulative.end()));
    last = tokens;
    last_count = gaps.cumulative.back();
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<MetricFamily> families = set.Read();
  EXPECT_EQ(Find(families, Metric::kOutputTokens)->samples[0].value, kThreads * kRounds);
  EXPECT_EQ(Find(families, Metric::kInterToken)->samples[0].cumulative.back(), kThreads * kRounds);
  double requests = 0;
  for (const MetricSample& sample : Find(families, Metric::kRequests)->samples) {
    requests += sample.value;
  }
  EXPECT_EQ(requests, kThreads * kRounds);
}

TEST(MetricSetDeathTest, RefusesMetricsOfOtherProgramsAndWrongLabels) {
  MetricSet set(MetricPrograms::kRouters);
  EXPECT_DEATH(set.Add(Metric::kWorkerSteps, 1), "not a metric of this program");
  EXPECT_DEATH(set.Add(Metric::kRequests, 1), "label endpoint");
  EXPECT_DEATH(set.Add(Metric::kOutputTokens, 1, Endpoint::kGenerate), "no label");
  EXPECT_DEATH(set.Observe(Metric::kOutputTokens, 1), "no histogram");
}

}  // namespace
}  // namespace baton
