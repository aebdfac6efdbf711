#include "router/grpc/kv_event_stream_reader.h"

#include <utility>

#include "rpc/status_conversion.h"

namespace baton {

KvEventStreamReader::KvEventStreamReader(std::unique_ptr<v1::Worker::Stub> stub,
                                         WorkerNumber worker, FleetIndex* index, TaskPool* tasks,
                                         OnEnd on_end)
    : stub_(std::move(stub)), tasks_(tasks), on_end_(std::move(on_end)), intake_(index, worker) {}

void KvEventStreamReader::Start(const KvEventPosition& position) {
  self_ = shared_from_this();
  request_.set_epoch(position.epoch.value());
  request_.set_sequence(position.sequence);
  stub_->async()->StreamKvEvents(&context_, &request_, this);
  AddHold();  // until no read follows
  StartRead(&message_);
  StartCall();
}

void KvEventStreamReader::OnReadDone(bool ok) {
  if (!ok) return RemoveHold();  // the stream has ended: OnDone follows
  const absl::Status posted = tasks_->Post([this] { TakeMessage(); });
  if (posted.ok()) return;
  intake_.Stop(posted);
  StopReading();
}

void KvEventStreamReader::TakeMessage() {
  const bool goes_on = intake_.Take({.epoch = Epoch(message_.epoch()),
                                     .sequence = message_.sequence(),
                                     .events = message_.events(),
                                     .part = message_.part(),
                                     .parts = message_.parts()});
  if (!goes_on) return StopReading();
  message_.Clear();
  StartRead(&message_);
}

void KvEventStreamReader::StopReading() {
  context_.TryCancel();
  RemoveHold();
}

void KvEventStreamReader::OnDone(const grpc::Status& status) {
  const KvEventIntake::End end = intake_.OnCallEnded(FromGrpcStatus(status));
  on_end_(end.status, end.progressed);
  const auto last = std::move(self_);  // may destroy this at the end of the scope
}

}  // namespace baton
