#include "worker_rpc/kv_event_stream.h"

#include <utility>

#include "rpc/status_conversion.h"

namespace baton {
namespace {

constexpr size_t kMaxUnread = 2;  // the pump sends one message at a time

}  // namespace

KvEventStream::KvEventStream(EngineRequests* engine)
    : StreamWriter(kMaxUnread), ServedKvEvents(engine) {}

void KvEventStream::SendMessage(const KvEventCursor::Message& message) {
  v1::KvEventBatch wire;
  wire.set_epoch(engine().epoch().value());
  wire.set_sequence(message.sequence);
  wire.set_part(message.part);
  wire.set_parts(message.parts);
  if (message.events != nullptr) wire.set_events(*message.events);  // null in the first message
  Send(std::move(wire));
}

void KvEventStream::EndCall(const absl::Status& status) { End(ToGrpcStatus(status)); }

std::weak_ptr<ServedKvEvents> KvEventStream::Weak() {
  return std::static_pointer_cast<KvEventStream>(shared_from_this());
}

}  // namespace baton
