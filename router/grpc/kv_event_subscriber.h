// Opens and closes the router's StreamKvEvents calls to workers. router/kv_event_subscriptions.h
// decides which streams are open and when one is reopened.
//
// Backpressure: each worker has at most one message in flight here. It is read, then one thread
// applies it to the index, and only then the next message is read. So a slow index slows the
// workers' streams down, messages do not pile up, and gRPC's threads never wait for the index.
//
// Thread safety: Tick and the destructor from one thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/clock.h"
#include "router/fleet_index.h"
#include "router/grpc/worker_channels.h"
#include "router/kv_event_subscriptions.h"
#include "routing/worker_registry.h"
#include "rpc/task_pool.h"

namespace baton {

class KvEventStreamReader;

class KvEventSubscriber {
 public:
  // All must outlive this. REQUIRES: max_workers >= 1.
  KvEventSubscriber(FleetIndex* index, WorkerChannels* channels, const Clock* clock,
                    int32_t max_workers);
  // Cancels the streams and waits for their end.
  ~KvEventSubscriber();

  // Opens the streams that are due and cancels those of workers that are not in `workers`. Call it
  // several times a second.
  void Tick(const std::vector<WorkerRecord>& workers);

 private:
  friend class KvEventStreamReader;
  void Open(const WorkerRecord& worker, const KvEventPosition& position);
  // `progressed`: at least one message was applied.
  void OnEnd(WorkerNumber worker, const absl::Status& status, bool progressed);

  FleetIndex* const index_;
  WorkerChannels* const channels_;
  const Clock* const clock_;
  std::mutex mutex_;
  std::condition_variable idle_;
  KvEventSubscriptions subscriptions_;  // guarded by mutex_
  absl::flat_hash_map<WorkerNumber, std::shared_ptr<KvEventStreamReader>>
      streams_;  // open ones; guarded by mutex_
  int32_t open_streams_ = 0;
  TaskPool index_writer_;  // one thread
};

}  // namespace baton
