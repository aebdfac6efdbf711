// One request's way through the router, as a state machine: events in, actions out. The host does
// all I/O.
//
//   Start → kChooseRoute → OnRoute → kSendStarted, kOpenDecode
//     a plan with a pull: kPull first; when it has ended, however it ended, kOpenDecode
//     remote: OnTicket → kSendPrefill; it fails → kPrefillLocally (a ticket is for one prefill
//     worker only)
//     OnTokens → kForwardTokens, OnChoiceFinished → kForwardFinished … behind the last choice's
//     OnDecodeFinished → (the prefill worker's report is awaited for a
//     moment, for the ledger) → kFinish
//     a decode worker that refuses or is unreachable before the first token → kChooseRoute
//     without it; its call may still be ending when the next one opens
//     no worker left, but some only had no room for KV from elsewhere → kChooseRoute once more
//     with placement() local: a worker queues what it prefills itself; where that worker dies, the
//     next one
//     a decode worker that is lost after tokens → kChooseRoute without it: the next one goes on
//     behind what was forwarded, and the client notices nothing. At most max_resumes times, since a
//     request may be what kills its workers.
//
// Invariants, whatever the order of events:
//  1. Exactly one terminal action, kFinish or kFail, and nothing for the client after it.
//  2. A call that was opened (kPull, kOpenDecode, kSendPrefill) and has not ended by itself is
//  cancelled
//     before the request ends; so is a decode call behind its last message, which a worker may
//     never close.
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
#include "routing/routing_policy.h"

namespace baton {

struct FlowAction {
  enum class Kind : uint8_t {
    kChooseRoute,      // by placement(), without excluded(); answer with OnRoute or OnNoRoute
    kSendStarted,      // to the client
    kPull,             // carry out the plan's pull, to `worker`
    kOpenDecode,       // on `worker`, attempt `attempt`, with `remote_prefill`
    kSendPrefill,      // to `worker`, with the ticket just received
    kForwardTokens,    // the tokens just received, to the client
    kForwardFinished,  // the end of a choice just received, as soon as report_pending() is over
    kPrefillLocally,   // tell the decode worker that no KV will come
    kCancelPull,       // and forget the route: no call to its workers will follow
    kCancelDecode,     // the call of `attempt`
    kCancelPrefill,
    kAwaitReport,  // call OnReportOverdue after a moment
    kFinish,       // the client gets every end it has not got; the request succeeded
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

  // `max_attempts`: decode workers asked in a row that gave no token. `max_resumes`: see above.
  RequestFlow(int32_t max_attempts, int32_t max_resumes)
      : max_attempts_(max_attempts), max_resumes_(max_resumes) {}

  Actions Start(Placement placement = Placement::kAutomatic);
  Actions OnRoute(const RoutePlan& plan);
  Actions OnNoRoute(absl::Status status);

  // `attempt` is that of the kPull or kOpenDecode which the event belongs to.
  Actions OnPullEnded(int32_t attempt);  // whatever came of it
  Actions OnTicket(int32_t attempt);
  Actions OnTokens(int32_t attempt);
  Actions OnChoiceFinished(int32_t attempt);
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
  // Of the latest route; 0 before the first.
  int32_t attempt() const { return attempt_; }
  // Where the next route has to prefill.
  Placement placement() const { return placement_; }
  // The client has a part of the answer: a worker goes on behind it.
  bool resumes() const { return tokens_forwarded_; }
  // The prefill worker's report, a part of each choice's ledger, may still come.
  bool report_pending() const { return prefill_ == PrefillState::kOpen && !ended(); }
  // An attempt is under way that others could take over, were its decode worker given up.
  bool MayLoseDecode() const;
  // Decode workers that were lost in mid-answer.
  int32_t lost_workers() const { return lost_workers_; }
  // Decode workers that cannot take this request.
  const absl::flat_hash_set<WorkerNumber>& excluded() const { return excluded_; }

 private:
  enum class State : uint8_t { kNew, kRouting, kPulling, kDecoding, kAwaitingReport, kEnded };
  enum class PrefillState : uint8_t { kNone, kOpen, kReported, kLocal };

  // Whether another worker may do what this one failed at.
  bool WorthAnotherWorker(const absl::Status& status) const;
  // What the client is told: a refusal to go on with its answer is not a fault of its request.
  absl::Status ForClient(const absl::Status& status) const;
  // Begins to count anew: the worker that was lost had the request in hand.
  void Resume();
  bool Current(int32_t attempt) const { return state_ == State::kDecoding && attempt == attempt_; }
  void CancelOpenCalls(Actions& actions);
  FlowAction OpenDecode();
  Actions TryAnother(absl::Status status);
  bool MayQueueLocally() const;
  Actions QueueLocally();
  Actions Fail(absl::Status status);

  const int32_t max_attempts_;
  const int32_t max_resumes_;
  State state_ = State::kNew;
  PrefillState prefill_ = PrefillState::kNone;
  bool decode_open_ = false;
  bool started_sent_ = false;
  bool tokens_forwarded_ = false;
  bool tokens_in_attempt_ = false;  // this attempt's worker gave some, or the end of a choice
  bool prompt_is_there_ = false;    // on this attempt's worker, since it gave tokens
  bool queueing_locally_ = false;
  int32_t attempt_ = 0;
  int32_t failures_ = 0;  // in a row
  int32_t lost_workers_ = 0;
  Placement asked_placement_ = Placement::kAutomatic;
  Placement placement_ = Placement::kAutomatic;
  RoutePlan plan_;
  absl::flat_hash_set<WorkerNumber> excluded_;
  absl::flat_hash_set<WorkerNumber> refused_hand_off_;  // had no room for it
  absl::Status last_refusal_;
};

}  // namespace baton
