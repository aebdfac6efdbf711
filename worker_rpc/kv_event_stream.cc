#include "worker_rpc/kv_event_stream.h"

#include <utility>

#include "rpc/status_conversion.h"

namespace baton {
namespace {

constexpr size_t kMaxUnread = 2;  // it sends one at a time

v1::KvEventBatch ToWire(Epoch epoch, const KvEventCursor::Message& message) {
  v1::KvEventBatch wire;
  wire.set_epoch(epoch.value());
  wire.set_sequence(message.sequence);
  wire.set_part(message.part);
  wire.set_parts(message.parts);
  wire.set_events(*message.events);
  return wire;
}

}  // namespace

KvEventStream::KvEventStream(Engine* engine) : StreamWriter(kMaxUnread), engine_(engine) {}

std::weak_ptr<KvEventStream> KvEventStream::Weak() {
  return std::static_pointer_cast<KvEventStream>(shared_from_this());
}

void KvEventStream::Start(const v1::StreamKvEventsRequest& request,
                          absl::StatusOr<CallGate::Pass> pass) {
  if (!pass.ok()) return End(ToGrpcStatus(pass.status()));
  KvEventFeed* const feed = engine_->kv_events();
  if (feed == nullptr) {
    return End(ToGrpcStatus(absl::FailedPreconditionError("this worker keeps no prefix cache")));
  }
  std::unique_lock lock(mutex_);
  pass_ = *std::move(pass);
  subscription_ = feed->Subscribe([weak = Weak()] {
    if (const std::shared_ptr<KvEventStream> stream = weak.lock()) stream->Pump();
  });
  const bool same_epoch = request.epoch() == engine_->epoch().value();
  cursor_.emplace(feed, same_epoch ? request.sequence() : 0);
  v1::KvEventBatch first;
  first.set_epoch(engine_->epoch().value());
  first.set_sequence(feed->last());
  sending_ = Send(std::move(first));
}

void KvEventStream::StopListening() {
  std::unique_lock lock(mutex_);
  const uint64_t subscription = std::exchange(subscription_, 0);
  lock.unlock();
  if (subscription != 0) engine_->kv_events()->Unsubscribe(subscription);
}

void KvEventStream::OnStreamDone() {
  StopListening();
  std::lock_guard lock(mutex_);
  const CallGate::Pass given_back = std::move(pass_);
}

void KvEventStream::OnDrained() {
  {
    std::lock_guard lock(mutex_);
    sending_ = false;
  }
  Pump();
}

void KvEventStream::Pump() {
  {
    std::lock_guard lock(mutex_);
    if (sending_ || awaits_snapshot_ || subscription_ == 0) return;
    if (const std::optional<KvEventCursor::Message> next = cursor_->Next()) {
      sending_ = Send(ToWire(engine_->epoch(), *next));
      return;
    }
    if (!cursor_->needs_snapshot()) return;
    awaits_snapshot_ = true;
  }
  engine_->SnapshotKvEvents([weak = Weak()](auto snapshot) {
    if (const std::shared_ptr<KvEventStream> stream = weak.lock()) {
      stream->OnSnapshot(std::move(snapshot));
    }
  });
}

void KvEventStream::OnSnapshot(absl::StatusOr<std::shared_ptr<const KvEventSnapshot>> snapshot) {
  if (!snapshot.ok()) return End(ToGrpcStatus(snapshot.status()));
  {
    std::lock_guard lock(mutex_);
    awaits_snapshot_ = false;
    cursor_->Take(*std::move(snapshot));
  }
  Pump();
}

}  // namespace baton
