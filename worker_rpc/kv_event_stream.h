// Stream of this worker's KV events to one reader, over gRPC (served_kv_events.h).
//
// Thread safety: called by gRPC and by the engine's loop.
#pragma once

#include <memory>

#include "baton/v1/worker.grpc.pb.h"
#include "engine/engine_requests.h"
#include "rpc/stream_writer.h"
#include "worker_rpc/served_kv_events.h"

namespace baton {

class KvEventStream final : public StreamWriter<v1::KvEventBatch>, public ServedKvEvents {
 public:
  // `engine` must outlive the stream.
  explicit KvEventStream(EngineRequests* engine);

 private:
  void OnCalledOff() override { StopListening(); }
  void OnDrained() override { OnSent(); }
  void OnStreamDone() override { GiveBackPlace(); }

  void SendMessage(const KvEventCursor::Message& message) override;
  void EndCall(const absl::Status& status) override;
  std::weak_ptr<ServedKvEvents> Weak() override;
};

}  // namespace baton
