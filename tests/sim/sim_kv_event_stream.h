// One reader of a simulated worker's KV events: production's KvEventPump over a simulated call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/kv_event_pump.h"
#include "tests/sim/mutants.h"
#include "tests/sim/sim_call.h"
#include "tests/sim/sim_engine.h"

namespace baton {

// What the stream carries: KvEventMessage with the bytes that it is about.
struct SimKvEventMessage {
  Epoch epoch{0};
  KvEventCursor::Message message;
};

class SimKvEventStream final : public std::enable_shared_from_this<SimKvEventStream> {
 public:
  using OnMessage = std::function<void(const SimKvEventMessage&)>;

  // All in the worker's process; `on_message` runs in the router's. `engine` tells of KV events.
  SimKvEventStream(SimNode& node, SimEngine& engine, Epoch epoch, Mutant mutant,
                   std::shared_ptr<SimCall> call, OnMessage on_message)
      : node_(node),
        engine_(engine),
        epoch_(epoch),
        mutant_(mutant),
        call_(std::move(call)),
        on_message_(std::move(on_message)) {}
  ~SimKvEventStream();

  // Begins behind batch `sequence` of `epoch`.
  void Start(Epoch epoch, uint64_t sequence);

 private:
  void Send(KvEventCursor::Message message);
  void CarryOut(KvEventPump::Action action);

  SimNode& node_;
  SimEngine& engine_;
  const Epoch epoch_;
  const Mutant mutant_;
  const std::shared_ptr<SimCall> call_;
  const OnMessage on_message_;
  uint64_t subscription_ = 0;
  std::unique_ptr<KvEventPump> pump_;
};

}  // namespace baton
