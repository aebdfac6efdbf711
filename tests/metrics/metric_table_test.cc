#include "metrics/metric_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

namespace baton {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

bool IsWord(std::string_view text) {
  return !text.empty() &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

TEST(MetricTable, NamesAreUniqueAndFollowPrometheusConventions) {
  std::set<std::string_view> names;
  for (const MetricDeclaration& metric : MetricTable()) {
    SCOPED_TRACE(std::string(metric.name));
    EXPECT_TRUE(names.insert(metric.name).second);
    EXPECT_TRUE(IsWord(metric.name));
    EXPECT_TRUE(metric.name.starts_with("baton_") || metric.name.starts_with("process_"));
    EXPECT_EQ(metric.type == MetricType::kCounter, metric.name.ends_with("_total"));
    EXPECT_EQ(metric.is_info(), metric.name.ends_with("_info"));
    for (const std::string_view reserved : {"_count", "_sum", "_bucket"}) {
      EXPECT_FALSE(metric.name.ends_with(reserved));
    }
  }
}

TEST(MetricTable, AUnitThatPrometheusKnowsEndsTheName) {
  for (const MetricDeclaration& metric : MetricTable()) {
    std::string_view name = metric.name;
    if (metric.type == MetricType::kCounter) name.remove_suffix(std::string_view("_total").size());
    for (const std::string_view unit : {"seconds", "bytes", "ratio"}) {
      EXPECT_EQ(metric.unit == unit, name.ends_with(unit)) << metric.name;
    }
  }
}

TEST(MetricTable, EveryMetricHasAnExplanationOfSentences) {
  for (const MetricDeclaration& metric : MetricTable()) {
    SCOPED_TRACE(std::string(metric.name));
    EXPECT_THAT(metric.help, Not(IsEmpty()));
    EXPECT_TRUE(metric.help.ends_with("."));
    EXPECT_EQ(metric.help.find_first_of("|\n"), std::string_view::npos);  // would break the table
  }
}

TEST(MetricTable, LabelsHaveDistinctNamesAndValues) {
  for (const MetricDeclaration& metric : MetricTable()) {
    SCOPED_TRACE(std::string(metric.name));
    std::set<std::string_view> names;
    for (const MetricLabel& label : metric.labels) {
      if (label.name.empty()) continue;
      EXPECT_TRUE(IsWord(label.name));
      EXPECT_NE(label.name, "le");
      EXPECT_TRUE(names.insert(label.name).second);
      EXPECT_EQ(label.values.empty(), metric.is_info());
      const std::set<std::string_view> values(label.values.begin(), label.values.end());
      EXPECT_EQ(values.size(), label.values.size());
      for (const std::string_view value : values) EXPECT_TRUE(IsWord(value)) << value;
    }
    // A label in the second place needs one in the first.
    EXPECT_FALSE(metric.labels[0].name.empty() && !metric.labels[1].name.empty());
  }
}

TEST(MetricTable, HistogramsHaveRisingBucketsAndOthersNone) {
  for (const MetricDeclaration& metric : MetricTable()) {
    SCOPED_TRACE(std::string(metric.name));
    EXPECT_EQ(metric.type == MetricType::kHistogram, !metric.buckets.empty());
    EXPECT_EQ(
        std::adjacent_find(metric.buckets.begin(), metric.buckets.end(), std::greater_equal<>()),
        metric.buckets.end());
    for (const int64_t bound : metric.buckets) EXPECT_GT(bound, 0);
  }
}

TEST(MetricTable, ThePlaceOfADeclarationIsItsId) {
  EXPECT_EQ(DeclarationOf(Metric::kBuildInfo).name, "baton_build_info");
  EXPECT_EQ(DeclarationOf(Metric::kRequests).name, "baton_requests_total");
  EXPECT_EQ(DeclarationOf(Metric::kWorkerEngineHung).name, "baton_worker_engine_hung");
  EXPECT_EQ(ProgramsOf(Metric::kProcessThreads), MetricPrograms::kAll);
  EXPECT_EQ(ProgramsOf(Metric::kRequests), MetricPrograms::kRouters);
  EXPECT_EQ(ProgramsOf(Metric::kLogLinesDropped), MetricPrograms::kRouters);
  EXPECT_EQ(ProgramsOf(Metric::kWorkerRequests), MetricPrograms::kWorkers);
}

TEST(MetricTable, ARouterHasFewSeries) {
  size_t series = 0;
  for (const MetricDeclaration& metric : MetricTable()) {
    if (ProgramsOf(metric.id) == MetricPrograms::kWorkers) continue;
    size_t of_metric = metric.buckets.empty() ? 1 : metric.buckets.size() + 3;
    for (const MetricLabel& label : metric.labels) {
      of_metric *= std::max<size_t>(1, label.values.size());
    }
    series += of_metric;
  }
  EXPECT_LT(series, 400);
}

TEST(MetricTable, StatusCodesHaveTheNamesOfAbseil) {
  for (int code = 0; code < static_cast<int>(kStatusCodeNames.size()); ++code) {
    std::string name = absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    EXPECT_EQ(kStatusCodeNames[static_cast<size_t>(code)], name);
  }
  EXPECT_EQ(LabelOf(static_cast<absl::StatusCode>(99)), absl::StatusCode::kUnknown);
  EXPECT_EQ(LabelOf(absl::StatusCode::kDataLoss), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace baton
