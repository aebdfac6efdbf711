#include "metrics/metric_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "metrics/metric_table.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(MetricDocument, TheFileInDocsIsCurrent) {
  std::ifstream file(BATON_TESTDATA "/../../docs/METRICS.md");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_TRUE(text == MetricsMarkdown())
      << "docs/METRICS.md is not current: run baton inspect metrics --markdown > docs/METRICS.md";
}

TEST(MetricDocument, NamesEveryMetricWithItsLabels) {
  const std::string markdown = MetricsMarkdown();
  const std::string text = MetricsText(80);
  for (const MetricDeclaration& metric : MetricTable()) {
    EXPECT_THAT(markdown, HasSubstr(std::string("| `") + std::string(metric.name) + "` |"));
    EXPECT_THAT(text, HasSubstr(std::string(metric.name)));
    for (const MetricLabel& label : metric.labels) {
      if (label.name.empty()) continue;
      EXPECT_THAT(markdown, HasSubstr(std::string("`") + std::string(label.name) + "`"));
    }
  }
}

TEST(MetricDocument, MapsTheNamesThatGatewaysRead) {
  const std::string markdown = MetricsMarkdown();
  EXPECT_THAT(
      markdown,
      HasSubstr("| `baton_worker_requests_waiting` | workers | `vllm:num_requests_waiting` | "
                "`sglang:num_queue_reqs` | `TotalQueuedRequests` |"));
  EXPECT_THAT(markdown, HasSubstr("`KVCacheUtilization`"));
}

TEST(MetricDocument, TheTextFitsTheTerminal) {
  const std::string text = MetricsText(80);
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    EXPECT_LE(end - begin, 100) << text.substr(begin, end - begin);
    begin = end + 1;
  }
}

}  // namespace
}  // namespace baton
