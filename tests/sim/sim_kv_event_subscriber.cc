#include "tests/sim/sim_kv_event_subscriber.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

// As in router/grpc/kv_event_subscriber.
constexpr int64_t kFirstRetryUs = 100'000;
constexpr int64_t kLastRetryUs = 2'000'000;

}  // namespace

void SimKvEventSubscriber::Tick(const std::vector<WorkerRecord>& workers) {
  for (auto& [number, subscription] : subscriptions_) subscription.present = false;
  for (const WorkerRecord& worker : workers) {
    if (!worker.report.prefix_cache) continue;
    Subscription& subscription = subscriptions_[worker.number];
    subscription.present = true;
    const bool due = environment_.node->clock().NowUs() >= subscription.retry_at_us;
    if (subscription.stream == nullptr && !subscription.cannot_tell && due) {
      Begin(worker, subscription);
    }
  }
  std::erase_if(subscriptions_, [](const auto& entry) {
    if (entry.second.present) return false;
    if (entry.second.stream != nullptr) entry.second.stream->call->Cancel();
    return true;
  });
}

void SimKvEventSubscriber::Begin(const WorkerRecord& worker, Subscription& subscription) {
  const absl::StatusOr<KvEventPosition> position = environment_.index->Position(worker.number);
  if (!position.ok()) return;  // the index learns of it with its next tick
  SimWorker* const there = environment_.worker_at(worker.report.address);
  const auto stream = std::make_shared<Stream>();
  subscription.stream = stream;
  const auto on_message = [this, worker,
                           weak = std::weak_ptr(stream)](const SimKvEventMessage& sent) {
    if (const std::shared_ptr<Stream> open = weak.lock()) Take(worker, *open, sent);
  };
  stream->call = SimCall::Start(
      *environment_.network, environment_.node->id(), there->node().id(), MessageKind::kEvents,
      /*deadline_us=*/0,
      [there, at = *position, on_message](const std::shared_ptr<SimCall>& call) {
        there->StreamKvEvents(call, at, on_message);
      },
      [this, number = worker.number, weak = std::weak_ptr(stream)](absl::Status status) {
        if (const std::shared_ptr<Stream> open = weak.lock()) {
          OnEnd(number, *open, std::move(status));
        }
      });
}

void SimKvEventSubscriber::Take(const WorkerRecord& worker, Stream& stream,
                                const SimKvEventMessage& sent) {
  if (!stream.stopped_by.ok()) return;  // it was on its way
  const KvEventCursor::Message& message = sent.message;
  const absl::Status taken = environment_.index->Take(
      worker.number, {.epoch = sent.epoch,
                      .sequence = message.sequence,
                      .events = message.events == nullptr ? std::string_view() : *message.events,
                      .part = message.part,
                      .parts = message.parts});
  stream.progressed = stream.progressed || taken.ok();
  if (taken.ok()) return;
  stream.stopped_by = taken;
  stream.call->Cancel();
  // It may have gone, and another may have come in its place; what it said itself is never wrong.
  if (absl::IsNotFound(taken) || absl::IsAborted(taken)) return;
  environment_.refused(worker.report.id, taken);
}

void SimKvEventSubscriber::OnEnd(WorkerNumber number, Stream& stream, absl::Status status) {
  const auto it = subscriptions_.find(number);
  if (it == subscriptions_.end() || it->second.stream.get() != &stream) return;  // it has departed
  if (!stream.stopped_by.ok()) status = stream.stopped_by;
  Subscription& subscription = it->second;
  const bool is_first =
      (stream.progressed && stream.stopped_by.ok()) || subscription.backoff_us == 0;
  subscription.stream = nullptr;
  if (absl::IsUnimplemented(status) || absl::IsFailedPrecondition(status)) {
    subscription.cannot_tell = true;
    return environment_.index->CannotTell(number, status);
  }
  subscription.backoff_us =
      is_first ? kFirstRetryUs : std::min(2 * subscription.backoff_us, kLastRetryUs);
  subscription.retry_at_us = environment_.node->clock().NowUs() + subscription.backoff_us;
  environment_.index->Interrupted(number, status);
}

}  // namespace baton
