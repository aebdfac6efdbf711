// Applies the messages of one stream of KV events to the index.
//
// Invariants:
//  1. After the index refuses a message, no further message is applied, and the call is cancelled.
//  2. The stream then ends with the index's error, regardless of the call's status.
//  3. A stream has made progress if it brought a message and the index refused none.
//
// Pure: the caller reads and cancels. The router's gRPC edge and the simulation both use this
// class.
//
// Thread safety: none; one call at a time.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "router/fleet_index.h"
#include "routing/worker_registry.h"

namespace baton {

class KvEventIntake {
 public:
  // `index` must outlive this.
  KvEventIntake(FleetIndex* index, WorkerNumber worker) : index_(index), worker_(worker) {}

  // Returns false if the caller must cancel the call and stop reading.
  bool Take(const KvEventMessage& message) {
    if (!stopped_by_.ok()) return false;  // it was sent before the stop
    stopped_by_ = index_->Take(worker_, message);
    progressed_ = progressed_ || stopped_by_.ok();
    return stopped_by_.ok();
  }
  // Applies no further message. REQUIRES: `why` is not OK.
  void Stop(absl::Status why) { stopped_by_ = std::move(why); }
  // OK if no message was refused and Stop was not called.
  const absl::Status& stopped_by() const { return stopped_by_; }

  struct End {
    absl::Status status;
    bool progressed = false;
  };
  End OnCallEnded(const absl::Status& call) const {
    return {.status = stopped_by_.ok() ? call : stopped_by_,
            .progressed = progressed_ && stopped_by_.ok()};
  }

 private:
  FleetIndex* const index_;
  const WorkerNumber worker_;
  absl::Status stopped_by_;
  bool progressed_ = false;
};

}  // namespace baton
