// Stream of this worker's KV events to one reader, over gRPC. It executes the actions of
// engine/kv_event_pump.h.
//
// Readers that need a snapshot of the same state share it.
//
// Lock order: this stream's lock, then the writer's or the feed's. The engine is called without
// this stream's lock.
//
// Thread safety: called by gRPC and by the engine's loop.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/status/statusor.h"
#include "baton/v1/worker.grpc.pb.h"
#include "engine/engine.h"
#include "engine/kv_event_pump.h"
#include "rpc/concurrency_limit.h"
#include "rpc/stream_writer.h"

namespace baton {

class KvEventStream final : public StreamWriter<v1::KvEventBatch> {
 public:
  // `engine` must outlive the stream.
  explicit KvEventStream(Engine* engine);

  // Starts the stream, or ends it at once with an error. `slot` is released when gRPC is done.
  void Start(const v1::StreamKvEventsRequest& request, absl::StatusOr<ConcurrencyLimit::Slot> slot);

 private:
  void OnCalledOff() override { StopListening(); }
  void OnDrained() override;
  void OnStreamDone() override;

  std::weak_ptr<KvEventStream> Weak();
  void StopListening();
  template <typename Event>
  void Tell(Event event);
  void OnSnapshot(absl::StatusOr<std::shared_ptr<const KvEventSnapshot>> snapshot);

  Engine* const engine_;
  std::mutex mutex_;
  ConcurrencyLimit::Slot slot_;
  uint64_t subscription_ = 0;  // 0: none
  std::optional<KvEventPump> pump_;
};

}  // namespace baton
