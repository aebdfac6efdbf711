#include "tests/sim/sim_kv_event_stream.h"

#include <utility>

namespace baton {
namespace {

constexpr int64_t kWriteUs = 20;  // until a message has left

}  // namespace

SimKvEventStream::~SimKvEventStream() {
  if (subscription_ != 0) engine_.loop().kv_events()->Unsubscribe(subscription_);
}

void SimKvEventStream::Start(Epoch epoch, uint64_t sequence) {
  KvEventFeed* const feed = engine_.loop().kv_events();
  subscription_ = feed->Subscribe([this] { CarryOut(pump_->OnNews()); });
  pump_ = std::make_unique<KvEventPump>(feed, epoch_, epoch, sequence);
  CarryOut(pump_->Start());
}

void SimKvEventStream::CarryOut(KvEventPump::Action action) {
  if (action.send.has_value()) Send(*std::move(action.send));
  if (!action.ask_for_snapshot) return;
  engine_.loop().SnapshotKvEvents(
      [weak = weak_from_this()](absl::StatusOr<std::shared_ptr<const KvEventSnapshot>> snapshot) {
        const std::shared_ptr<SimKvEventStream> self = weak.lock();
        if (self == nullptr) return;
        if (!snapshot.ok()) return self->call_->Finish(snapshot.status());
        self->CarryOut(self->pump_->OnSnapshot(*std::move(snapshot)));
      });
}

void SimKvEventStream::Send(KvEventCursor::Message message) {
  if (mutant_ == Mutant::kSyntheticEventId && message.parts > 0) message.sequence = message.parts;
  call_->Send(MessageKind::kEvents,
              [on_message = on_message_, sent = SimKvEventMessage{epoch_, std::move(message)}] {
                on_message(sent);
              });
  node_.Post(kWriteUs, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->CarryOut(self->pump_->OnSent());
  });
}

}  // namespace baton
