// Stream of a simulated worker's KV events to one reader: production's ServedKvEvents over a
// simulated call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "engine/kv_event_cursor.h"
#include "tests/sim/mutants.h"
#include "tests/sim/sim_call.h"
#include "tests/sim/sim_node.h"
#include "worker_rpc/served_kv_events.h"

namespace baton {

// Message of the stream: KvEventMessage, with the bytes of its batch.
struct SimKvEventMessage {
  Epoch epoch{0};
  KvEventCursor::Message message;
};

class SimKvEventStream final : public ServedKvEvents,
                               public std::enable_shared_from_this<SimKvEventStream> {
 public:
  using OnMessage = std::function<void(const SimKvEventMessage&)>;

  // Everything runs in the worker's process, except `on_message`, which runs in the router's.
  SimKvEventStream(SimNode& node, EngineRequests* engine, Mutant mutant,
                   std::shared_ptr<SimCall> call, OnMessage on_message)
      : ServedKvEvents(engine),
        node_(node),
        mutant_(mutant),
        call_(std::move(call)),
        on_message_(std::move(on_message)) {}
  ~SimKvEventStream() override { StopListening(); }
  bool ended() const { return ended_; }

 private:
  void SendMessage(const KvEventCursor::Message& message) override;
  void EndCall(const absl::Status& status) override;
  std::weak_ptr<ServedKvEvents> Weak() override { return weak_from_this(); }

  SimNode& node_;
  const Mutant mutant_;
  const std::shared_ptr<SimCall> call_;
  const OnMessage on_message_;
  bool ended_ = false;  // this worker has ended the stream
};

}  // namespace baton
