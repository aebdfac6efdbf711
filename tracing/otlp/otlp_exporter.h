// Sends spans to an OpenTelemetry collector, over gRPC in OTLP. It has a bounded queue and a thread
// of its own, so a dead or slow collector never delays a request. It only costs spans, which
// baton_trace_spans_dropped_total counts.
//
// A batch that the collector does not accept within kExportMs is dropped, not sent again.
//
// Thread safety: constructor and destructor on one thread. The tracer, on any thread, may be used
// until the destructor.
#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "metrics/metric_set.h"
#include "otlp/trace.grpc.pb.h"
#include "tracing/otlp/span_wire.h"
#include "tracing/span_queue.h"
#include "tracing/tracer.h"
#include "tracing/tracing_options.h"

namespace baton {

class OtlpExporter {
 public:
  static constexpr int64_t kExportMs = 5000;

  // Returns null if options.otlp_endpoint is empty. `service`: the program's name. `instance`: its
  // own name among those; empty: made from host and process. `metrics` must outlive the exporter;
  // null: nothing is counted. REQUIRES: CheckCollector (otlp_collector.h).
  static std::unique_ptr<OtlpExporter> Start(const TracingOptions& options,
                                             const std::string& service,
                                             const std::string& instance, MetricSet* metrics);
  // Sends what is queued, for at most a second.
  ~OtlpExporter();

  Tracer* tracer() { return &tracer_; }

 private:
  OtlpExporter(const TracingOptions& options, SpanResource resource, MetricSet* metrics);

  void Run();
  // Returns false if the collector did not accept the spans.
  bool Export(const std::vector<Span>& spans);
  void Count(Metric metric, int64_t spans);

  const std::string endpoint_;
  const SpanResource resource_;
  MetricSet* const metrics_;
  SpanQueue queue_;
  Tracer tracer_;
  const std::unique_ptr<otlp::TraceService::Stub> stub_;
  std::mutex mutex_;
  std::condition_variable changed_;
  grpc::ClientContext* running_ = nullptr;  // of the call that runs; guarded by mutex_
  bool cut_off_ = false;                    // no further call may run; guarded by mutex_
  bool done_ = false;                       // the thread has ended; guarded by mutex_
  bool fails_ = false;                      // the last batch failed; for the thread only
  std::thread thread_;                      // last member: it uses the others
};

}  // namespace baton
