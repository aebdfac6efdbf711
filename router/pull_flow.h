// The steps of one pull at the router (engine/prefix_pull.h): the receiver is asked to take a
// prefix in; with its ticket the source is asked to send it; the pull ends with the receiver's
// call.
//
// Invariants:
//  1. The source is asked once, with the first ticket.
//  2. If the source refuses, nothing will come, and the receiver's call is cancelled.
//  3. The pull ends once, with the receiver's call, whatever becomes of the source's. The source's
//     call is cancelled then: it may not have begun to send.
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

// How long a pull is waited for.
int64_t PullTimeoutMs(const RouterOptions& options, const PrefixPull& pull);

class PullFlow {
 public:
  // True: ask the source, with this ticket.
  bool OnTicket() { return !std::exchange(source_asked_, true); }

  // True: cancel the receiver's call.
  bool OnSourceAnswered(const absl::Status& status) {
    source_ = status;
    return !status.ok();
  }

  struct Outcome {
    absl::Status status;  // OK: the receiver has said what is cached there
    bool receiver_gone = false;
    bool source_gone = false;
  };
  // The source's refusal is the reason of a pull that failed with it.
  Outcome OnReceiverEnded(const absl::Status& status) const {
    return {.status = status.ok() || source_.ok() ? status : source_,
            .receiver_gone = absl::IsUnavailable(status),
            .source_gone = absl::IsUnavailable(source_)};
  }

 private:
  bool source_asked_ = false;
  absl::Status source_;  // what it answered; OK: nothing yet, or that it sends
};

}  // namespace baton
