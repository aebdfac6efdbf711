// The messages of one stream of KV events on their way into the index.
//
// Invariants:
//  1. After a message that the index refuses, no further message is taken, and the call is
//  cancelled.
//  2. The stream then ends with the index's reason, whatever the call ends with.
//  3. A stream has made progress if it brought a message and none was refused.
//
// Pure: the caller reads and cancels. The router's gRPC edge and the simulation both run this.
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
  // `index` outlives this.
  KvEventIntake(FleetIndex* index, WorkerNumber worker) : index_(index), worker_(worker) {}

  // False: cancel the call, and read no further.
  bool Take(const KvEventMessage& message) {
    if (!stopped_by_.ok()) return false;  // it was on its way
    stopped_by_ = index_->Take(worker_, message);
    progressed_ = progressed_ || stopped_by_.ok();
    return stopped_by_.ok();
  }
  // No further message is taken. REQUIRES: `why` is not OK.
  void Stop(absl::Status why) { stopped_by_ = std::move(why); }
  // OK while all messages are taken.
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
