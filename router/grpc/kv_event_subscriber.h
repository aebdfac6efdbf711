// The router's end of the workers' streams of KV events, over gRPC. Which streams are open, and
// when one is opened again, is router/kv_event_subscriptions.h.
//
// A worker has one message under way at a time: it is read, taken into the index by the one thread
// that writes there, and only then the next is read. So a slow index slows the workers' streams
// down, nothing piles up here, and gRPC's threads do not wait for the index.
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

  // Follows those of `workers` that are not followed and let go of the others. Several times a
  // second.
  void Tick(const std::vector<WorkerRecord>& workers);

 private:
  friend class KvEventStreamReader;
  void Open(const WorkerRecord& worker, const KvEventPosition& position);
  // `progressed`: at least one message was taken in.
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
