#include "router/grpc/worker_prober.h"

#include <chrono>
#include <functional>
#include <utility>

#include "rpc/channel.h"

namespace baton {
WorkerProber::WorkerProber(RouterCore* core, WorkerChannels* channels,
                           FailureDetector* failure_detector, int64_t silence_ms)
    : rounds_(core, failure_detector, silence_ms),
      channels_(channels),
      silence_ms_(silence_ms),
      thread_([this] { Run(); }) {}

WorkerProber::~WorkerProber() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
  std::unique_lock lock(mutex_);
  for (const auto& [id, probe] : probes_) probe->Cancel();
  changed_.wait(lock, [this] { return probes_.empty(); });
}

void WorkerProber::Run() {
  while (!Pause()) {
    rounds_.Run([this](const FailureDetector::Target& target) { Probe(target); });
  }
}

bool WorkerProber::Pause() {
  const auto round = std::chrono::microseconds(rounds_.interval_us());
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, round, [this] { return stopping_; });
}

void WorkerProber::Probe(const FailureDetector::Target& target) {
  v1::PingRequest request;
  request.set_epoch(target.epoch.value());
  const auto begin = [](v1::Worker::Stub& stub, grpc::ClientContext* context,
                        const v1::PingRequest* wire, v1::PingResponse* response,
                        std::function<void(grpc::Status)> done) {
    stub.async()->Ping(context, wire, response, std::move(done));
  };
  std::lock_guard lock(mutex_);  // the answer comes on another thread and must find the probe
  const int64_t id = next_probe_++;
  probes_[id] = PingCall::Start(
      v1::Worker::NewStub(channels_->Get(target.address, target.epoch)), std::move(request),
      DeadlineIn(silence_ms_), begin,
      [this, id, number = target.number](const absl::Status& status, const v1::PingResponse&) {
        rounds_.OnAnswer(number, status);
        std::lock_guard lock(mutex_);
        probes_.erase(id);
        if (probes_.empty()) changed_.notify_all();
      });
}

}  // namespace baton
