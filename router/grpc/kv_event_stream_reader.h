// The router's end of one StreamKvEvents call. It reads a message, lets the index apply it, then
// reads the next.
//
// The call is held open (AddHold) while a message may be in the index's queue, because the index's
// thread starts the next read.
//
// Thread safety: Start and Cancel from any thread. The other functions run on gRPC's threads and
// the index's thread, one at a time.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "baton/v1/worker.grpc.pb.h"
#include "router/fleet_index.h"
#include "router/kv_event_intake.h"
#include "routing/worker_registry.h"
#include "rpc/task_pool.h"

namespace baton {

class KvEventStreamReader final : public grpc::ClientReadReactor<v1::KvEventBatch>,
                                  public std::enable_shared_from_this<KvEventStreamReader> {
 public:
  // `progressed`: at least one message was applied.
  using OnEnd = std::function<void(const absl::Status& status, bool progressed)>;

  // Index and tasks must outlive the call. `on_end` is called once, as the last call.
  KvEventStreamReader(std::unique_ptr<v1::Worker::Stub> stub, WorkerNumber worker,
                      FleetIndex* index, TaskPool* tasks, OnEnd on_end);

  // The object keeps itself alive until the call has ended.
  void Start(const KvEventPosition& position);
  void Cancel() { context_.TryCancel(); }

 private:
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  void TakeMessage();
  // Cancels the call and reads no further message.
  void StopReading();

  const std::unique_ptr<v1::Worker::Stub> stub_;
  TaskPool* const tasks_;
  const OnEnd on_end_;
  grpc::ClientContext context_;
  v1::StreamKvEventsRequest request_;
  v1::KvEventBatch message_;
  KvEventIntake intake_;
  std::shared_ptr<KvEventStreamReader> self_;
};

}  // namespace baton
