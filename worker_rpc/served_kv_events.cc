#include "worker_rpc/served_kv_events.h"

#include <utility>

namespace baton {

void ServedKvEvents::Start(ConcurrencyLimit& limit, Epoch epoch, uint64_t sequence) {
  absl::StatusOr<ConcurrencyLimit::Slot> slot = limit.Enter();
  if (!slot.ok()) return EndCall(slot.status());
  KvEventFeed* const feed = engine_->kv_events();
  if (feed == nullptr) {
    return EndCall(absl::FailedPreconditionError("this worker publishes no KV events"));
  }
  std::lock_guard lock(mutex_);
  slot_ = *std::move(slot);
  subscription_ = feed->Subscribe([weak = Weak()] {
    if (const std::shared_ptr<ServedKvEvents> reader = weak.lock()) {
      reader->Tell([](KvEventPump& pump) { return pump.OnNews(); });
    }
  });
  pump_.emplace(feed, engine_->epoch(), epoch, sequence);
  SendMessage(*pump_->Start().send);
}

void ServedKvEvents::StopListening() {
  std::unique_lock lock(mutex_);
  const uint64_t subscription = std::exchange(subscription_, 0);
  lock.unlock();
  if (subscription != 0) engine_->kv_events()->Unsubscribe(subscription);
}

void ServedKvEvents::GiveBackPlace() {
  StopListening();
  std::lock_guard lock(mutex_);
  const ConcurrencyLimit::Slot given_back = std::move(slot_);
}

void ServedKvEvents::OnSent() {
  Tell([](KvEventPump& pump) { return pump.OnSent(); });
}

// Passes an event to the pump and executes the resulting action.
template <typename Event>
void ServedKvEvents::Tell(Event event) {
  {
    std::lock_guard lock(mutex_);
    if (subscription_ == 0) return;
    const KvEventPump::Action action = event(*pump_);
    if (action.send.has_value()) SendMessage(*action.send);
    if (!action.ask_for_snapshot) return;
  }
  engine_->SnapshotKvEvents([weak = Weak()](auto snapshot) {
    if (const std::shared_ptr<ServedKvEvents> reader = weak.lock()) {
      reader->OnSnapshot(std::move(snapshot));
    }
  });
}

void ServedKvEvents::OnSnapshot(absl::StatusOr<std::shared_ptr<const KvEventSnapshot>> snapshot) {
  if (!snapshot.ok()) return EndCall(snapshot.status());
  Tell([&](KvEventPump& pump) { return pump.OnSnapshot(*std::move(snapshot)); });
}

}  // namespace baton
