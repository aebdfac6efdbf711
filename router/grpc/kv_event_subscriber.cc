#include "router/grpc/kv_event_subscriber.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/shown_text.h"
#include "router/grpc/kv_event_stream_reader.h"

namespace baton {
namespace {

constexpr int64_t kFirstRetryUs = 100'000;
constexpr int64_t kLastRetryUs = 2'000'000;

// What a worker answers that has no events to tell, now or later.
bool SaysItCannotTell(const absl::Status& status) {
  return absl::IsUnimplemented(status) || absl::IsFailedPrecondition(status);
}

}  // namespace

KvEventSubscriber::KvEventSubscriber(FleetIndex* index, WorkerChannels* channels,
                                     const Clock* clock, int32_t max_workers)
    : index_(index),
      channels_(channels),
      clock_(clock),
      // A stream has one message here; those of workers that just left may have one, too.
      index_writer_(/*threads=*/1, size_t{2} * static_cast<size_t>(max_workers),
                    "messages for the index") {}

KvEventSubscriber::~KvEventSubscriber() {
  Tick({});
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return open_streams_ == 0; });
}

void KvEventSubscriber::Tick(const std::vector<WorkerRecord>& workers) {
  std::lock_guard lock(mutex_);
  for (auto& [number, subscription] : subscriptions_) subscription.present = false;
  for (const WorkerRecord& worker : workers) {
    if (!worker.report.prefix_cache) continue;
    Subscription& subscription = subscriptions_[worker.number];
    subscription.present = true;
    const bool due = clock_->NowUs() >= subscription.retry_at_us;
    if (subscription.stream == nullptr && !subscription.cannot_tell && due) {
      Begin(worker, subscription);
    }
  }
  absl::erase_if(subscriptions_, [](const auto& entry) {
    if (entry.second.present) return false;
    if (entry.second.stream != nullptr) entry.second.stream->Cancel();
    return true;
  });
}

// REQUIRES: mutex_.
void KvEventSubscriber::Begin(const WorkerRecord& worker, Subscription& subscription) {
  const absl::StatusOr<KvEventPosition> position = index_->Position(worker.number);
  if (!position.ok()) return;  // the index learns of it with its next tick
  subscription.stream = std::make_shared<KvEventStreamReader>(
      v1::Worker::NewStub(channels_->Get(worker.report.address, worker.report.epoch)),
      worker.number, index_, &index_writer_,
      [this, number = worker.number](const absl::Status& status, bool progressed) {
        OnEnd(number, status, progressed);
      });
  ++open_streams_;
  subscription.stream->Start(*position);
}

void KvEventSubscriber::OnEnd(WorkerNumber number, const absl::Status& status, bool progressed) {
  // Notified under the lock: who waits may destroy this as soon as it runs.
  std::lock_guard lock(mutex_);
  if (--open_streams_ == 0) idle_.notify_all();
  const auto it = subscriptions_.find(number);
  if (it == subscriptions_.end()) return;  // it has departed
  Subscription& subscription = it->second;
  subscription.stream = nullptr;
  if (SaysItCannotTell(status)) {
    LOG(WARNING) << "worker " << number
                 << " tells of no cached prefixes: " << Printable(status.ToString());
    subscription.cannot_tell = true;
    return index_->CannotTell(number, status);
  }
  const bool is_first = progressed || subscription.backoff_us == 0;
  subscription.backoff_us =
      is_first ? kFirstRetryUs : std::min(2 * subscription.backoff_us, kLastRetryUs);
  subscription.retry_at_us = clock_->NowUs() + subscription.backoff_us;
  index_->Interrupted(number, status);
}

}  // namespace baton
