// State machine for one prefix pull at the router (engine/prefix_pull.h). The router asks the
// receiver to take in a prefix. With the receiver's ticket, it asks the source to send the prefix.
// The pull ends when the receiver's call ends.
//
// Invariants:
// 1. The source is asked once, with the first ticket.
// 2. If the source refuses, nothing will come, and the receiver's call is cancelled.
// 3. The pull ends once, with the receiver's call, in whatever state the source's call is. The
//    source's call is then cancelled, because it may not have begun to send.
//
// Pure: the caller makes and cancels the calls. The router's gRPC edge and the simulation both run
// this.
//
// Thread safety: none; the caller locks.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "router/router_options.h"
#include "routing/routing_policy.h"

namespace baton {

// How long the router waits for a pull.
int64_t PullTimeoutMs(const RouterOptions& options, const PrefixPull& pull);

class PullFlow {
 public:
  // Returns true if the caller must ask the source, with this ticket.
  bool OnTicket() { return !std::exchange(source_asked_, true); }

  // Returns true if the caller must cancel the receiver's call.
  bool OnSourceAnswered(const absl::Status& status) {
    source_ = status;
    return !status.ok();
  }

  struct Outcome {
    absl::Status status;  // OK: the receiver has reported what it has cached
    bool receiver_gone = false;
    bool source_gone = false;
  };
  // If the source refused, its error is the reason why the pull failed.
  Outcome OnReceiverEnded(const absl::Status& status) const {
    return {.status = status.ok() || source_.ok() ? status : source_,
            .receiver_gone = absl::IsUnavailable(status),
            .source_gone = absl::IsUnavailable(source_)};
  }

 private:
  bool source_asked_ = false;
  absl::Status source_;  // the source's answer; OK: none yet, or it is sending
};

}  // namespace baton
