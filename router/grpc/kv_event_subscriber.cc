#include "router/grpc/kv_event_subscriber.h"

#include <utility>

#include "common/check.h"
#include "common/printable_text.h"
#include "router/grpc/kv_event_stream_reader.h"

namespace baton {

KvEventSubscriber::KvEventSubscriber(FleetIndex* index, WorkerChannels* channels,
                                     const Clock* clock, int32_t max_workers)
    : index_(index),
      channels_(channels),
      clock_(clock),
      subscriptions_(index),
      // Each stream has at most one message here. Streams of workers that have just left may have
      // one too.
      index_writer_(/*threads=*/1, size_t{2} * static_cast<size_t>(max_workers),
                    "messages for the index") {}

KvEventSubscriber::~KvEventSubscriber() {
  Tick({});
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return open_streams_ == 0; });
}

void KvEventSubscriber::Tick(const std::vector<WorkerRecord>& workers) {
  std::lock_guard lock(mutex_);
  subscriptions_.Tick(
      workers, clock_->NowUs(),
      [this](const WorkerRecord& worker, const KvEventPosition& position) {
        Open(worker, position);
      },
      [this](WorkerNumber number) { streams_.extract(number).mapped()->Cancel(); });
}

// REQUIRES: mutex_.
void KvEventSubscriber::Open(const WorkerRecord& worker, const KvEventPosition& position) {
  auto stream = std::make_shared<KvEventStreamReader>(
      v1::Worker::NewStub(channels_->Get(worker.report.address, worker.report.epoch)),
      worker.number, index_, &index_writer_,
      [this, number = worker.number](const absl::Status& status, bool progressed) {
        OnEnd(number, status, progressed);
      });
  ++open_streams_;
  stream->Start(position);
  streams_.emplace(worker.number, std::move(stream));
}

void KvEventSubscriber::OnEnd(WorkerNumber number, const absl::Status& status, bool progressed) {
  // Notifies under the lock: a waiting destructor may finish as soon as it runs.
  std::lock_guard lock(mutex_);
  if (--open_streams_ == 0) idle_.notify_all();
  switch (subscriptions_.OnEnd(number, status, progressed, clock_->NowUs())) {
    case KvEventSubscriptions::End::kForgotten:
      return;
    case KvEventSubscriptions::End::kCannotTell:
      LOG(WARNING) << "worker " << number
                   << " publishes no KV events: " << Printable(status.ToString());
      break;
    case KvEventSubscriptions::End::kRetried:
      break;
  }
  streams_.erase(number);
}

}  // namespace baton
