#include "tests/sim/sim_kv_event_subscriber.h"

#include <utility>

namespace baton {

void SimKvEventSubscriber::Tick(const std::vector<WorkerRecord>& workers) {
  subscriptions_.Tick(
      workers, environment_.node->clock().NowUs(),
      [this](const WorkerRecord& worker, const KvEventPosition& position) {
        Open(worker, position);
      },
      [this](WorkerNumber number) { streams_.extract(number).mapped()->call->Cancel(); });
}

void SimKvEventSubscriber::Open(const WorkerRecord& worker, const KvEventPosition& position) {
  SimWorker* const there = environment_.worker_at(worker.report.address);
  const auto stream = std::make_shared<Stream>(KvEventIntake(environment_.index, worker.number));
  streams_[worker.number] = stream;
  const auto on_message = [this, id = worker.report.id,
                           weak = std::weak_ptr(stream)](const SimKvEventMessage& sent) {
    if (const std::shared_ptr<Stream> open = weak.lock()) Take(id, *open, sent);
  };
  stream->call = SimCall::Start(
      *environment_.network, environment_.node->id(), there->node().id(), MessageKind::kEvents,
      /*deadline_us=*/0,
      [there, position, on_message](const std::shared_ptr<SimCall>& call) {
        there->StreamKvEvents(call, position, on_message);
      },
      [this, number = worker.number, weak = std::weak_ptr(stream)](const absl::Status& status) {
        if (const std::shared_ptr<Stream> open = weak.lock()) OnEnd(number, *open, status);
      });
}

void SimKvEventSubscriber::Take(const std::string& worker_id, Stream& stream,
                                const SimKvEventMessage& sent) {
  if (!stream.intake.stopped_by().ok()) return;  // the worker sent it before the stop
  const KvEventCursor::Message& message = sent.message;
  const bool goes_on = stream.intake.Take(
      {.epoch = sent.epoch,
       .sequence = message.sequence,
       .events = message.events == nullptr ? std::string_view() : *message.events,
       .part = message.part,
       .parts = message.parts});
  if (goes_on) return;
  stream.call->Cancel();
  // The worker may be gone, and another one may have its address. Otherwise, the index must accept
  // all events of the worker.
  const absl::Status& why = stream.intake.stopped_by();
  if (!absl::IsNotFound(why) && !absl::IsAborted(why)) environment_.refused(worker_id, why);
}

void SimKvEventSubscriber::OnEnd(WorkerNumber number, const Stream& stream,
                                 const absl::Status& status) {
  const KvEventIntake::End end = stream.intake.OnCallEnded(status);
  const auto became =
      subscriptions_.OnEnd(number, end.status, end.progressed, environment_.node->clock().NowUs());
  if (became != KvEventSubscriptions::End::kForgotten) streams_.erase(number);  // destroys `stream`
}

}  // namespace baton
