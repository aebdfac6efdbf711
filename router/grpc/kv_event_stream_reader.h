// The router's end of one StreamKvEvents call: reads a message, has the index take it in, reads the
// next.
//
// The call is held open (AddHold) for as long as a message may be being taken in, since the next
// read starts from the index's thread.
//
// Thread safety: Start and Cancel from any thread; the rest is gRPC's and the index thread's, one
// at a time.
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
  // `progressed`: at least one message was taken in.
  using OnEnd = std::function<void(const absl::Status& status, bool progressed)>;

  // Index and tasks must outlive the call; `on_end` is called once, last.
  KvEventStreamReader(std::unique_ptr<v1::Worker::Stub> stub, WorkerNumber worker,
                      FleetIndex* index, TaskPool* tasks, OnEnd on_end);

  // Keeps itself alive until the call has ended.
  void Start(const KvEventPosition& position);
  void Cancel() { context_.TryCancel(); }

 private:
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  void TakeMessage();
  // No further message is wanted.
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
