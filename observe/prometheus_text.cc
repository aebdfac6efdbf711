#include "observe/prometheus_text.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <limits>

namespace baton {
namespace {

prometheus::MetricType TypeOf(const MetricDeclaration& declaration) {
  switch (declaration.type) {
    case MetricType::kCounter:
      return prometheus::MetricType::Counter;
    case MetricType::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricType::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::ClientMetric ToClientMetric(const MetricDeclaration& declaration,
                                        const MetricSample& sample) {
  prometheus::ClientMetric out;
  for (const auto& [name, value] : sample.labels) out.label.push_back({name, value});
  out.counter.value = sample.value;
  out.gauge.value = sample.value;
  if (declaration.type != MetricType::kHistogram) return out;
  const auto scale = static_cast<double>(declaration.scale());
  for (size_t i = 0; i < sample.cumulative.size(); ++i) {
    const bool last = i == declaration.buckets.size();
    out.histogram.bucket.push_back(
        {.cumulative_count = sample.cumulative[i],
         .upper_bound = last ? std::numeric_limits<double>::infinity()
                             : static_cast<double>(declaration.buckets[i]) / scale});
  }
  out.histogram.sample_count = sample.cumulative.back();
  out.histogram.sample_sum = sample.sum;
  return out;
}

}  // namespace

std::string ToPrometheusText(const std::vector<MetricFamily>& families) {
  std::vector<prometheus::MetricFamily> out;
  out.reserve(families.size());
  for (const MetricFamily& family : families) {
    prometheus::MetricFamily& made = out.emplace_back();
    made.name = family.declaration->name;
    made.help = family.declaration->help;
    made.type = TypeOf(*family.declaration);
    for (const MetricSample& sample : family.samples) {
      made.metric.push_back(ToClientMetric(*family.declaration, sample));
    }
  }
  return prometheus::TextSerializer().Serialize(out);
}

}  // namespace baton
