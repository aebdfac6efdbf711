#include "metrics/metric_table.h"

#include <algorithm>
#include <iterator>

#include "metrics/common_metrics.h"
#include "metrics/router_metrics.h"
#include "metrics/worker_metrics.h"

namespace baton {
namespace {

constexpr size_t kRouterBegin = std::size(metric_row::kCommonMetrics);
constexpr size_t kWorkerBegin = kRouterBegin + std::size(metric_row::kRouterMetrics);

using Table = std::array<MetricDeclaration, kMetrics>;
static_assert(kWorkerBegin + std::size(metric_row::kWorkerMetrics) == kMetrics,
              "each value of Metric has one row");

constexpr Table MakeTable() {
  Table table;
  std::copy(std::begin(metric_row::kCommonMetrics), std::end(metric_row::kCommonMetrics),
            table.begin());
  std::copy(std::begin(metric_row::kRouterMetrics), std::end(metric_row::kRouterMetrics),
            table.begin() + kRouterBegin);
  std::copy(std::begin(metric_row::kWorkerMetrics), std::end(metric_row::kWorkerMetrics),
            table.begin() + kWorkerBegin);
  return table;
}
constexpr Table kTable = MakeTable();

constexpr bool IsInOrder() {
  for (size_t i = 0; i < kMetrics; ++i) {
    if (static_cast<size_t>(kTable[i].id) != i) return false;
  }
  return true;
}
static_assert(IsInOrder(), "the rows have the order of Metric");

}  // namespace

std::string_view MetricTypeName(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "";
}

std::span<const MetricDeclaration> MetricTable() { return kTable; }

MetricPrograms ProgramsOf(Metric metric) {
  const auto place = static_cast<size_t>(metric);
  if (place < kRouterBegin) return MetricPrograms::kAll;
  return place < kWorkerBegin ? MetricPrograms::kRouters : MetricPrograms::kWorkers;
}

}  // namespace baton
