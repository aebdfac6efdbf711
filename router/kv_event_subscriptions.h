// Decides which workers' KV event streams a router follows and when it reopens one. Reports to the
// index how a stream ended. The messages of a stream go through kv_event_intake.h.
//
// A router follows one stream for each incarnation that has a prefix cache. A stream that ends is
// reopened after 0.1 s. The pause doubles up to 2 s while streams end without progress. A worker
// that answers Unimplemented or FailedPrecondition has no events to publish and is not asked again.
//
// Pure: the caller opens and cancels the streams. The router's gRPC edge and the simulation both
// run this.
//
// Thread safety: none; the caller locks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "router/fleet_index.h"
#include "routing/worker_registry.h"

namespace baton {

class KvEventSubscriptions {
 public:
  // Opens the stream of a worker, which begins at `position`.
  using Open = std::function<void(const WorkerRecord& worker, const KvEventPosition& position)>;
  // Cancels an open stream. OnEnd() need not be called for it.
  using Cancel = std::function<void(WorkerNumber worker)>;

  // `index` must outlive this.
  explicit KvEventSubscriptions(FleetIndex* index) : index_(index) {}

  // Opens the streams that are due and whose workers the index knows. Cancels the streams of
  // workers that are gone. Call it several times a second with all live workers. The two callbacks
  // must not call this object.
  void Tick(const std::vector<WorkerRecord>& workers, int64_t now_us, const Open& open,
            const Cancel& cancel);

  enum class End : uint8_t {
    kForgotten,   // the worker is gone or had no open stream; nothing changes
    kCannotTell,  // the worker publishes no events and is not asked again
    kRetried,     // the stream is reopened later
  };
  // Reports that a stream has ended. `progressed`: at least one message was applied, and none was
  // refused.
  End OnEnd(WorkerNumber worker, const absl::Status& status, bool progressed, int64_t now_us);

 private:
  struct Subscription {
    bool open = false;
    bool cannot_tell = false;
    bool present = false;  // in this Tick's workers
    int64_t retry_at_us = 0;
    int64_t backoff_us = 0;
  };

  FleetIndex* index_;
  std::map<WorkerNumber, Subscription> subscriptions_;
};

}  // namespace baton
