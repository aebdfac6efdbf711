#include "tests/sim/sim_kv_event_stream.h"

#include <utility>

namespace baton {
namespace {

constexpr int64_t kWriteUs = 20;  // delay until a message has left

}  // namespace

void SimKvEventStream::SendMessage(const KvEventCursor::Message& message) {
  SimKvEventMessage sent{engine().epoch(), message};
  if (mutant_ == Mutant::kSyntheticEventId && message.parts > 0) {
    sent.message.sequence = message.parts;
  }
  call_->Send(MessageKind::kEvents,
              [on_message = on_message_, sent = std::move(sent)] { on_message(sent); });
  node_.Post(kWriteUs, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->OnSent();
  });
}

void SimKvEventStream::EndCall(const absl::Status& status) {
  ended_ = true;
  call_->Finish(status);
}

}  // namespace baton
