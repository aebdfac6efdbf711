#include "worker_rpc/kv_event_stream.h"

#include <utility>

#include "rpc/status_conversion.h"

namespace baton {
namespace {

constexpr size_t kMaxUnread = 2;  // the pump sends one message at a time

v1::KvEventBatch ToWire(Epoch epoch, const KvEventCursor::Message& message) {
  v1::KvEventBatch wire;
  wire.set_epoch(epoch.value());
  wire.set_sequence(message.sequence);
  wire.set_part(message.part);
  wire.set_parts(message.parts);
  if (message.events != nullptr) wire.set_events(*message.events);  // else the first message
  return wire;
}

}  // namespace

KvEventStream::KvEventStream(Engine* engine) : StreamWriter(kMaxUnread), engine_(engine) {}

std::weak_ptr<KvEventStream> KvEventStream::Weak() {
  return std::static_pointer_cast<KvEventStream>(shared_from_this());
}

void KvEventStream::Start(const v1::StreamKvEventsRequest& request,
                          absl::StatusOr<ConcurrencyLimit::Slot> slot) {
  if (!slot.ok()) return End(ToGrpcStatus(slot.status()));
  KvEventFeed* const feed = engine_->kv_events();
  if (feed == nullptr) {
    return End(ToGrpcStatus(absl::FailedPreconditionError("this worker publishes no KV events")));
  }
  std::unique_lock lock(mutex_);
  slot_ = *std::move(slot);
  subscription_ = feed->Subscribe([weak = Weak()] {
    if (const std::shared_ptr<KvEventStream> stream = weak.lock()) {
      stream->Tell([](KvEventPump& pump) { return pump.OnNews(); });
    }
  });
  pump_.emplace(feed, engine_->epoch(), Epoch(request.epoch()), request.sequence());
  Send(ToWire(engine_->epoch(), *pump_->Start().send));
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
  const ConcurrencyLimit::Slot given_back = std::move(slot_);
}

void KvEventStream::OnDrained() {
  Tell([](KvEventPump& pump) { return pump.OnSent(); });
}

// Passes an event to the pump and executes the resulting action.
template <typename Event>
void KvEventStream::Tell(Event event) {
  {
    std::lock_guard lock(mutex_);
    if (subscription_ == 0) return;
    const KvEventPump::Action action = event(*pump_);
    if (action.send.has_value()) Send(ToWire(engine_->epoch(), *action.send));
    if (!action.ask_for_snapshot) return;
  }
  engine_->SnapshotKvEvents([weak = Weak()](auto snapshot) {
    if (const std::shared_ptr<KvEventStream> stream = weak.lock()) {
      stream->OnSnapshot(std::move(snapshot));
    }
  });
}

void KvEventStream::OnSnapshot(absl::StatusOr<std::shared_ptr<const KvEventSnapshot>> snapshot) {
  if (!snapshot.ok()) return End(ToGrpcStatus(snapshot.status()));
  Tell([&](KvEventPump& pump) { return pump.OnSnapshot(*std::move(snapshot)); });
}

}  // namespace baton
