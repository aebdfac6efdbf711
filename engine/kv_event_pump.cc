#include "engine/kv_event_pump.h"

#include <utility>

namespace baton {

KvEventPump::Action KvEventPump::Start() {
  sending_ = true;
  return {.send = KvEventCursor::Message{.sequence = feed_->last()}};
}

KvEventPump::Action KvEventPump::OnNews() {
  if (sending_ || awaits_snapshot_) return {};
  Action action{.send = cursor_.Next()};
  sending_ = action.send.has_value();
  awaits_snapshot_ = action.ask_for_snapshot = !sending_ && cursor_.needs_snapshot();
  return action;
}

KvEventPump::Action KvEventPump::OnSent() {
  sending_ = false;
  return OnNews();
}

KvEventPump::Action KvEventPump::OnSnapshot(std::shared_ptr<const KvEventSnapshot> snapshot) {
  awaits_snapshot_ = false;
  cursor_.Take(std::move(snapshot));
  return OnNews();
}

}  // namespace baton
