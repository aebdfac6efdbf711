// One reader of a worker's KV events: takes its place, listens to the feed, and carries out what
// engine/kv_event_pump.h says.
//
// Readers that are at the same snapshot share it.
//
// Pure: derived classes send. The workers' gRPC service and the simulation both run this.
//
// Lock order: this reader's lock, then those of the derived class and the feed. The engine is asked
// without it.
//
// Thread safety: every function, from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine_requests.h"
#include "engine/kv_event_pump.h"
#include "rpc/concurrency_limit.h"

namespace baton {

class ServedKvEvents {
 public:
  // `engine` must outlive this, or at least the call of GiveBackPlace.
  explicit ServedKvEvents(EngineRequests* engine) : engine_(engine) {}
  virtual ~ServedKvEvents() = default;

  // Begins behind batch `sequence` of `epoch`, or ends the call at once with what is wrong.
  void Start(ConcurrencyLimit& limit, Epoch epoch, uint64_t sequence);
  // What was sent last has been written.
  void OnSent();
  // The reader is gone.
  void StopListening();
  // The call is over.
  void GiveBackPlace();

 protected:
  // REQUIRES: does not call back on the spot.
  virtual void SendMessage(const KvEventCursor::Message& message) = 0;
  virtual void EndCall(const absl::Status& status) = 0;
  virtual std::weak_ptr<ServedKvEvents> Weak() = 0;
  EngineRequests& engine() const { return *engine_; }

 private:
  template <typename Event>
  void Tell(Event event);
  void OnSnapshot(absl::StatusOr<std::shared_ptr<const KvEventSnapshot>> snapshot);

  EngineRequests* const engine_;
  std::mutex mutex_;
  ConcurrencyLimit::Slot slot_;
  uint64_t subscription_ = 0;  // 0: none
  std::optional<KvEventPump> pump_;
};

}  // namespace baton
