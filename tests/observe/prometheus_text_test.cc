#include "observe/prometheus_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PrometheusText, WritesHelpTypeLabelsAndValues) {
  MetricSet set(MetricPrograms::kRouters);
  set.Add(Metric::kRequests, 3, Endpoint::kGenerate, absl::StatusCode::kOk);
  set.SetInfo(Metric::kBuildInfo, {"1.2.3", "a \"program\"\\\n"});
  const std::string text = ToPrometheusText(set.Read());
  EXPECT_THAT(text, HasSubstr("# HELP baton_requests_total Requests that have ended"));
  EXPECT_THAT(text, HasSubstr("# TYPE baton_requests_total counter\n"));
  EXPECT_THAT(text, HasSubstr("\nbaton_requests_total{endpoint=\"generate\",code=\"ok\"} 3\n"));
  EXPECT_THAT(text,
              HasSubstr("baton_requests_total{endpoint=\"completions\",code=\"internal\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("baton_build_info{version=\"1.2.3\",program=\"a "
                              "\\\"program\\\"\\\\\\n\"} 1\n"));
}

TEST(PrometheusText, AHistogramHasCumulativeBucketsSumAndCountInUnits) {
  MetricSet set(MetricPrograms::kRouters);
  set.Observe(Metric::kTimeToFirstToken, 1'500'000);   // 1.5 s
  set.Observe(Metric::kTimeToFirstToken, 70'000'000);  // 70 s: above all bounds
  const std::string text = ToPrometheusText(set.Read());
  EXPECT_THAT(text, HasSubstr("baton_time_to_first_token_seconds_bucket{le=\"1\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("baton_time_to_first_token_seconds_bucket{le=\"2\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("baton_time_to_first_token_seconds_bucket{le=\"60\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("baton_time_to_first_token_seconds_bucket{le=\"+Inf\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("baton_time_to_first_token_seconds_sum 71.5\n"));
  EXPECT_THAT(text, HasSubstr("baton_time_to_first_token_seconds_count 2\n"));
}

TEST(PrometheusText, NoSeriesIsTwiceThereAndNoneIsNaN) {
  for (const MetricPrograms programs : {MetricPrograms::kRouters, MetricPrograms::kWorkers}) {
    const std::string text = ToPrometheusText(MetricSet(programs).Read());
    std::istringstream lines(text);
    std::set<std::string> series;
    std::string line;
    while (std::getline(lines, line)) {
      const std::string name =
          line.substr(0, line.starts_with("#") ? line.size() : line.rfind(' '));
      EXPECT_TRUE(series.insert(name).second) << line;
    }
    EXPECT_THAT(text, Not(HasSubstr("Nan")));
    EXPECT_THAT(text, Not(HasSubstr("nan\n")));
    EXPECT_GT(series.size(), 100);
  }
}

}  // namespace
}  // namespace baton
