// One request's way through the router, as a state machine: events in, actions out. The host does
// all I/O.
//
//   Start → kChooseRoute → OnRoute → kSendStarted, kOpenDecode
//     remote: OnTicket → kSendPrefill; it fails → kPrefillLocally (a ticket is for one prefill
//     worker only)
//     OnTokens → kForwardTokens … OnDecodeFinished → (the prefill worker's report is awaited for a
//     moment, for the ledger) → kFinish
//     a decode worker that refuses or is unreachable before the first token → kChooseRoute
//     without it; its call may still be ending when the next one opens
//     no worker left, but some only had no room for KV from elsewhere → kChooseRoute once more
//     with placement() local: a worker queues what it prefills itself; where that worker dies, the
//     next one
//
// Invariants, whatever the order of events:
//  1. Exactly one terminal action, kFinish or kFail, and nothing for the client after it.
//  2. A call that was opened (kOpenDecode, kSendPrefill) and has not ended by itself is cancelled
//  before the request ends; so is a decode call behind its last message, which a worker may never
//  close.
//  3. Events of an earlier attempt, and events after the end, are ignored.
//
// Actions of one event are to be carried out in order, and before the next event.
//
// Thread safety: the host's lock.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "router/routing_policy.h"

namespace baton {

struct FlowAction {
  enum class Kind : uint8_t {
    kChooseRoute,     // by placement(), without excluded(); answer with OnRoute or OnNoRoute
    kSendStarted,     // to the client
    kOpenDecode,      // on `worker`, attempt `attempt`, with `remote_prefill`
    kSendPrefill,     // to `worker`, with the ticket just received
    kForwardTokens,   // the tokens just received, to the client
    kPrefillLocally,  // tell the decode worker that no KV will come
    kCancelDecode,    // the call of `attempt`
    kCancelPrefill,
    kAwaitReport,  // call OnReportOverdue after a moment
    kFinish,       // the client gets `finished`; the request succeeded
    kFail,         // the client gets `status`
  };
  Kind kind;
  int32_t attempt = 0;
  WorkerNumber worker{0};
  bool remote_prefill = false;
  absl::Status status = absl::OkStatus();
};
const char* FlowActionName(FlowAction::Kind kind);

class RequestFlow {
 public:
  using Actions = std::vector<FlowAction>;

  explicit RequestFlow(int32_t max_attempts) : max_attempts_(max_attempts) {}

  Actions Start(Placement placement = Placement::kAutomatic);
  Actions OnRoute(const RoutePlan& plan);
  Actions OnNoRoute(absl::Status status);

  // `attempt` is that of the kOpenDecode which the event belongs to.
  Actions OnTicket(int32_t attempt);
  Actions OnTokens(int32_t attempt);
  Actions OnDecodeFinished(int32_t attempt);                     // the worker's last message
  Actions OnDecodeFailed(int32_t attempt, absl::Status status);  // the call ended without one

  Actions OnPrefillDone(int32_t attempt);
  Actions OnPrefillFailed(int32_t attempt, absl::Status status);
  // The answer to kPrefillLocally; OK and NotFound are both fine.
  Actions OnPrefillLocallyDone(int32_t attempt, absl::Status status);
  Actions OnReportOverdue();

  // The client is gone, or its deadline has passed: `status` says which.
  Actions OnClientGone(absl::Status status);

  bool ended() const { return state_ == State::kEnded; }
  // Of the latest kOpenDecode; 0 before the first.
  int32_t attempt() const { return attempt_; }
  // Where the next route has to prefill.
  Placement placement() const { return placement_; }
  // Decode workers that cannot take this request.
  const absl::flat_hash_set<WorkerNumber>& excluded() const { return excluded_; }

 private:
  enum class State : uint8_t { kNew, kRouting, kDecoding, kAwaitingReport, kEnded };
  enum class PrefillState : uint8_t { kNone, kOpen, kReported, kLocal };

  bool Current(int32_t attempt) const { return state_ == State::kDecoding && attempt == attempt_; }
  void CancelOpenCalls(Actions& actions);
  Actions TryAnother(absl::Status status);
  bool MayQueueLocally() const;
  Actions QueueLocally();
  Actions Fail(absl::Status status);

  const int32_t max_attempts_;
  State state_ = State::kNew;
  PrefillState prefill_ = PrefillState::kNone;
  bool decode_open_ = false;
  bool started_sent_ = false;
  bool tokens_forwarded_ = false;
  bool queueing_locally_ = false;
  int32_t attempt_ = 0;
  Placement placement_ = Placement::kAutomatic;
  RoutePlan plan_;
  absl::flat_hash_set<WorkerNumber> excluded_;
  absl::flat_hash_set<WorkerNumber> refused_hand_off_;  // had no room for it
  absl::Status last_refusal_;
};

}  // namespace baton
