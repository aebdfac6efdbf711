#include "tracing/otlp/otlp_exporter.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "rpc/rpc_server.h"

namespace baton {
namespace {

// A collector that keeps the names of spans. While it is held, it answers nothing.
class FakeCollector final : public otlp::TraceService::Service {
 public:
  FakeCollector()
      : server_(*RpcServer::Start({.listen = "127.0.0.1:0"}, {this},
                                  {"opentelemetry.proto.collector.trace.v1.TraceService"})) {}
  ~FakeCollector() override { Hold(false); }

  grpc::Status Export(grpc::ServerContext* context,
                      const otlp::ExportTraceServiceRequest* request,
                      otlp::ExportTraceServiceResponse* response) override {
    std::unique_lock lock(mutex_);
    ++calls_;
    changed_.notify_all();
    while (held_ && !context->IsCancelled()) {
      changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
    for (const auto& resource : request->resource_spans()) {
      for (const auto& scope : resource.scope_spans()) {
        for (const otlp::Span& span : scope.spans()) names_.push_back(span.name());
      }
    }
    response->mutable_partial_success()->set_rejected_spans(rejects_);
    changed_.notify_all();
    return grpc::Status::OK;
  }

  void Hold(bool held) {
    std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  void Reject(int64_t spans) {
    std::lock_guard lock(mutex_);
    rejects_ = spans;
  }
  // Waits for a call, also one that is held. Returns false after 20 s.
  bool AwaitCall() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return calls_ > 0; });
  }
  // Waits for so many spans, at most 20 s.
  std::vector<std::string> Names(size_t least) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return names_.size() >= least; });
    return names_;
  }
  std::string address() const { return server_->address(); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int calls_ = 0;
  bool held_ = false;
  int64_t rejects_ = 0;
  std::vector<std::string> names_;
  const std::unique_ptr<RpcServer> server_;
};

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
  EXPECT_EQ(collector.Names(1200).size(), 1200u);
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
  ASSERT_EQ(collector.Names(1).size(), 1u);
  Record(*exporter, 700);
  exporter.reset();
  const int64_t sent = metrics_.Cells(Metric::kTraceSpans);
  EXPECT_EQ(sent + metrics_.Cells(Metric::kTraceSpansDropped), 701);
  EXPECT_GE(static_cast<int64_t>(collector.Names(0).size()), sent);
}

}  // namespace
}  // namespace baton
