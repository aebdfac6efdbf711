#include "tests/sim/sim_kv_event_subscriber.h"

#include <utility>

namespace baton {
void SimKvEventSubscriber::Tick(const std::vector<WorkerRecord>& workers) {
  subscriptions_.Tick(
      workers, environment_.node->clock().NowUs(),
      [this](const WorkerRecord& worker) { return Begin(worker); },
      [this](WorkerNumber number) { streams_.extract(number).mapped()->call->Cancel(); });
}

bool SimKvEventSubscriber::Begin(const WorkerRecord& worker) {
  const absl::StatusOr<KvEventPosition> position = environment_.index->Position(worker.number);
  if (!position.ok()) return false;  // the index learns of it with its next tick
  SimWorker* const there = environment_.worker_at(worker.report.address);
  const auto stream = std::make_shared<Stream>();
  streams_[worker.number] = stream;
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
  return true;
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
  if (!stream.stopped_by.ok()) status = stream.stopped_by;
  switch (subscriptions_.OnEnd(number, status, stream.progressed && stream.stopped_by.ok(),
                               environment_.node->clock().NowUs())) {
    case KvEventSubscriptions::End::kForgotten:
      return;
    case KvEventSubscriptions::End::kCannotTell:
      environment_.index->CannotTell(number, status);
      break;
    case KvEventSubscriptions::End::kRetried:
      environment_.index->Interrupted(number, status);
      break;
  }
  streams_.erase(number);  // destroys `stream`
}

}  // namespace baton
