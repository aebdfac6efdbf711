#include "tracing/otlp/otlp_exporter.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "tests/tracing/otlp/fake_collector.h"

namespace baton {
namespace {

class OtlpExporterTest : public ::testing::Test {
 protected:
  std::unique_ptr<OtlpExporter> Start(const std::string& endpoint) {
    return OtlpExporter::Start({.otlp_endpoint = endpoint}, "baton-router", "r", &metrics_);
  }
  static void Record(OtlpExporter& exporter, int spans) {
    for (int i = 0; i < spans; ++i) {
      exporter.tracer()->Record({.context = exporter.tracer()->NewSpan(std::nullopt),
                                 .name = "span " + std::to_string(i)});
    }
  }
  // Waits at most 20 s.
  bool Await(Metric metric, int64_t least) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (metrics_.Cells(metric) < least) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

  MetricSet metrics_{MetricPrograms::kRouters};
};

TEST_F(OtlpExporterTest, SendsEverySpanOnceAndCountsThem) {
  FakeCollector collector;
  const auto exporter = Start(collector.address());
  Record(*exporter, 1200);  // more than a batch
  EXPECT_EQ(collector.Spans(1200).size(), 1200u);
  EXPECT_TRUE(Await(Metric::kTraceSpans, 1200));
  EXPECT_EQ(metrics_.Cells(Metric::kTraceSpansDropped), 0);
}

TEST_F(OtlpExporterTest, IsOffWithoutACollector) { EXPECT_EQ(Start(""), nullptr); }

TEST_F(OtlpExporterTest, ADeadCollectorCostsTheSpansAndNothingElse) {
  auto exporter = Start("127.0.0.1:1");
  Record(*exporter, 100);
  EXPECT_TRUE(Await(Metric::kTraceSpansDropped, 100));
  Record(*exporter, 10'000);  // while the thread pauses; the queue has room for 8,192
  EXPECT_TRUE(Await(Metric::kTraceSpansDropped, 100 + 10'000 - 8192));
  exporter.reset();
  EXPECT_EQ(metrics_.Cells(Metric::kTraceSpansDropped), 10'100);
  EXPECT_EQ(metrics_.Cells(Metric::kTraceSpans), 0);
}

TEST_F(OtlpExporterTest, ASlowCollectorDelaysNeitherSpansNorTheEnd) {
  FakeCollector collector;
  collector.Hold(true);
  auto exporter = Start(collector.address());
  Record(*exporter, 10);
  ASSERT_TRUE(collector.AwaitCall());
  Record(*exporter, 20'000);  // returns while the call runs
  EXPECT_GE(metrics_.Cells(Metric::kTraceSpansDropped), 20'000 - 8192);
  exporter.reset();  // cuts the call off
  EXPECT_EQ(metrics_.Cells(Metric::kTraceSpansDropped), 20'010);
}

TEST_F(OtlpExporterTest, WhatTheCollectorRejectsIsDropped) {
  FakeCollector collector;
  collector.Reject(1'000'000);  // everything, in however many batches it comes
  const auto exporter = Start(collector.address());
  Record(*exporter, 5);
  EXPECT_TRUE(Await(Metric::kTraceSpansDropped, 5));
  EXPECT_EQ(metrics_.Cells(Metric::kTraceSpans), 0);
}

TEST_F(OtlpExporterTest, TheEndForgetsNoSpan) {
  FakeCollector collector;
  auto exporter = Start(collector.address());
  Record(*exporter, 1);
  ASSERT_EQ(collector.Spans(1).size(), 1u);
  Record(*exporter, 700);
  exporter.reset();
  const int64_t sent = metrics_.Cells(Metric::kTraceSpans);
  EXPECT_EQ(sent + metrics_.Cells(Metric::kTraceSpansDropped), 701);
  EXPECT_GE(static_cast<int64_t>(collector.Spans(0).size()), sent);
}

}  // namespace
}  // namespace baton
