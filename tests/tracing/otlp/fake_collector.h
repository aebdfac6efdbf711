// An OpenTelemetry collector for tests.
//
// Thread safety: every function, from any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "otlp/trace.grpc.pb.h"
#include "tracing/otlp/span_wire.h"

namespace baton {

struct CollectedSpan {
  std::string service;
  otlp::Span span;
};

// A collector that keeps all spans. While it is held, it answers nothing.
class FakeCollector final : public otlp::TraceService::Service {
 public:
  explicit FakeCollector(const std::shared_ptr<grpc::ServerCredentials>& credentials =
                             grpc::InsecureServerCredentials()) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", credentials, &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~FakeCollector() override {
    Hold(false);
    server_->Shutdown();
  }

  grpc::Status Export(grpc::ServerContext* context, const otlp::ExportTraceServiceRequest* request,
                      otlp::ExportTraceServiceResponse* response) override {
    std::unique_lock lock(mutex_);
    ++calls_;
    changed_.notify_all();
    while (held_ && !context->IsCancelled()) {
      changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
    for (const auto& resource : request->resource_spans()) {
      for (const auto& scope : resource.scope_spans()) {
        for (const otlp::Span& span : scope.spans()) {
          spans_.push_back(
              {.service = resource.resource().attributes(0).value().string_value(), .span = span});
        }
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
  // Waits for so many spans, at most 20 s. Returns all.
  std::vector<CollectedSpan> Spans(size_t least) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return spans_.size() >= least; });
    return spans_;
  }
  const std::string& address() const { return address_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int calls_ = 0;
  bool held_ = false;
  int64_t rejects_ = 0;
  std::vector<CollectedSpan> spans_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace baton
