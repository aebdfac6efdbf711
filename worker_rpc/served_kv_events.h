// Stream of a worker's KV events to one reader. It takes a slot, subscribes to the feed, and
// executes the actions of engine/kv_event_pump.h.
//
// Readers that need a snapshot of the same state share it.
//
// Pure: derived classes send. The workers' gRPC service and the simulation both use this class.
//
// Lock order: this stream's lock, then those of the derived class and the feed. The engine is
// called without this stream's lock.
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
  // `engine` must live at least until GiveBackPlace has returned.
  explicit ServedKvEvents(EngineRequests* engine) : engine_(engine) {}
  virtual ~ServedKvEvents() = default;

  // Starts after batch `sequence` of `epoch`, or ends the call at once with an error.
  void Start(ConcurrencyLimit& limit, Epoch epoch, uint64_t sequence);
  // The last message has been written.
  void OnSent();
  // Ends the subscription: the reader is gone.
  void StopListening();
  // Releases the slot: the call is over.
  void GiveBackPlace();

 protected:
  // Must not call back before it returns.
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
