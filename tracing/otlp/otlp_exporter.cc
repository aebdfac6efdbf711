#include "tracing/otlp/otlp_exporter.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/entropy.h"
#include "common/printable_text.h"
#include "rpc/channel.h"
#include "tracing/otlp/otlp_collector.h"

namespace baton {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMostQueuedSpans = 8192;
constexpr size_t kMostInBatch = 512;
constexpr milliseconds kBatchTime{500};     // a span waits so long for others
constexpr milliseconds kPause{1000};        // after a batch that failed
constexpr milliseconds kLastExports{1000};  // at the end

// Microseconds to add to the steady clock's time for the time since 1970.
int64_t UnixOffsetUs() {
  const int64_t unix_us = std::chrono::duration_cast<std::chrono::microseconds>(
                              std::chrono::system_clock::now().time_since_epoch())
                              .count();
  return unix_us - SystemClock().NowUs();
}

std::string InstanceOf(const std::string& instance) {
  if (!instance.empty()) return instance;
  char host[256] = "localhost";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, "-", getpid());
}

}  // namespace

std::unique_ptr<OtlpExporter> OtlpExporter::Start(const TracingOptions& options,
                                                  const std::string& service,
                                                  const std::string& instance, MetricSet* metrics) {
  if (options.otlp_endpoint.empty()) return nullptr;
  return std::unique_ptr<OtlpExporter>(new OtlpExporter(
      options, {.service = service, .instance = InstanceOf(instance), .version = BATON_VERSION},
      metrics));
}

OtlpExporter::OtlpExporter(const TracingOptions& options, SpanResource resource, MetricSet* metrics)
    : endpoint_(options.otlp_endpoint),
      resource_(std::move(resource)),
      metrics_(metrics),
      queue_(kMostQueuedSpans, metrics),
      tracer_(options.sample, EntropyBits, &queue_),
      stub_(otlp::TraceService::NewStub(CollectorChannel(options))),
      thread_([this] { Run(); }) {}

OtlpExporter::~OtlpExporter() {
  queue_.Stop();
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLastExports, [this] { return done_; });
    cut_off_ = true;
    if (running_ != nullptr) running_->TryCancel();
  }
  thread_.join();
}

void OtlpExporter::Run() {
  for (;;) {
    const std::vector<Span> spans = queue_.Take(kMostInBatch, kBatchTime);
    if (spans.empty()) {
      if (queue_.stopped()) break;
      continue;
    }
    if (!Export(spans)) {
      Count(Metric::kTraceSpansDropped, static_cast<int64_t>(spans.size()));
      queue_.Pause(kPause);
    }
  }
  std::lock_guard lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

bool OtlpExporter::Export(const std::vector<Span>& spans) {
  const otlp::ExportTraceServiceRequest request = SpansToWire(spans, resource_, UnixOffsetUs());
  otlp::ExportTraceServiceResponse response;
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(kExportMs));
  {
    std::lock_guard lock(mutex_);
    if (cut_off_) return false;
    running_ = &context;
  }
  const grpc::Status status = stub_->Export(&context, request, &response);
  {
    std::lock_guard lock(mutex_);
    running_ = nullptr;
  }
  if (std::exchange(fails_, !status.ok()) == status.ok()) {
    if (status.ok()) {
      LOG(INFO) << "the trace collector at " << endpoint_ << " accepts spans again";
    } else {
      LOG(WARNING) << "the trace collector at " << endpoint_
                   << " accepts no spans, so they are dropped: "
                   << Printable(status.error_message());
    }
  }
  if (!status.ok()) return false;
  const auto sent = static_cast<int64_t>(spans.size());
  const int64_t rejected =
      std::clamp<int64_t>(response.partial_success().rejected_spans(), 0, sent);
  Count(Metric::kTraceSpans, sent - rejected);
  Count(Metric::kTraceSpansDropped, rejected);
  return true;
}

void OtlpExporter::Count(Metric metric, int64_t spans) {
  if (metrics_ != nullptr) metrics_->Add(metric, spans);
}

}  // namespace baton
