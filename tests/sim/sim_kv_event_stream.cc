#include "tests/sim/sim_kv_event_stream.h"

#include <utility>

namespace baton {
namespace {

constexpr int64_t kWriteUs = 20;  // until a message has left

}  // namespace

SimKvEventStream::~SimKvEventStream() {
  if (subscription_ != 0) engine_.loop().kv_events()->Unsubscribe(subscription_);
}

void SimKvEventStream::Start(uint64_t sequence) {
  KvEventFeed* const feed = engine_.loop().kv_events();
  subscription_ = feed->Subscribe([this] { Pump(); });
  cursor_ = std::make_unique<KvEventCursor>(feed, sequence);
  Send({.sequence = feed->last()});
}

void SimKvEventStream::Send(KvEventCursor::Message message) {
  if (mutant_ == Mutant::kSyntheticEventId && message.parts > 0) message.sequence = message.parts;
  sending_ = true;
  call_->Send(MessageKind::kEvents,
              [on_message = on_message_, sent = SimKvEventMessage{epoch_, std::move(message)}] {
                on_message(sent);
              });
  node_.Post(kWriteUs, [weak = weak_from_this()] {
    const std::shared_ptr<SimKvEventStream> self = weak.lock();
    if (self == nullptr) return;
    self->sending_ = false;
    self->Pump();
  });
}

void SimKvEventStream::Pump() {
  if (sending_ || awaits_snapshot_) return;
  if (std::optional<KvEventCursor::Message> next = cursor_->Next()) return Send(*std::move(next));
  if (!cursor_->needs_snapshot()) return;
  awaits_snapshot_ = true;
  engine_.loop().SnapshotKvEvents(
      [weak = weak_from_this()](absl::StatusOr<std::shared_ptr<const KvEventSnapshot>> snapshot) {
        const std::shared_ptr<SimKvEventStream> self = weak.lock();
        if (self == nullptr || !snapshot.ok()) return;
        self->awaits_snapshot_ = false;
        self->cursor_->Take(*std::move(snapshot));
        self->Pump();
      });
}

}  // namespace baton
