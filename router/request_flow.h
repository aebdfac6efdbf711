// State machine for one request at the router: events in, actions out. The host does all I/O.
//
//   Start → kChooseRoute → OnRoute → kSendStarted, kOpenDecode
//     plan with a pull: kPull first; kOpenDecode when the pull has ended, successful or not
//     remote prefill: OnTicket → kSendPrefill; if that fails → kPrefillLocally, because a ticket is
//       for one prefill worker only
//     OnTokens → kForwardTokens; OnChoiceFinished → kForwardFinished; after the last choice
//       OnDecodeFinished → kAwaitReport (the prefill worker's report, for the ledger) → kFinish
//
//   When a decode worker fails:
//     It refuses or is unreachable before the first token → kChooseRoute without it. Its call may
//       still be ending when the next one opens.
//     No worker is left, but some lacked only room for KV from elsewhere → kChooseRoute again among
//       these, and the request may wait in the queue of its decode worker (queues_for_kv), which
//       gives the ticket when the request has blocks. A worker whose queue is full, or of an
//       earlier version, refuses again → the next one. If all refuse, or for a chunked prompt →
//       kChooseRoute with placement() local: a worker queues the prompt and computes it itself. If
//       a worker dies while a request is queued there, the next one is asked.
//     It is lost after tokens → kChooseRoute without it. The next worker resumes after the tokens
//       that were forwarded, and the client notices nothing. This happens at most max_resumes
//       times, because the request itself may be what kills its workers.
//
// Invariants, for every order of events:
// 1. There is exactly one terminal action, kFinish or kFail, and nothing goes to the client after
//    it.
// 2. Every open call (kPull, kOpenDecode, kSendPrefill) is cancelled before the request ends. That
//    includes a decode call after its last message, because a worker might never close it.
// 3. Events of an earlier attempt, and events after the end, are ignored.
//
// The host carries out the actions of one event in order, and before the next event.
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
    kChooseRoute,    // use placement() and skip excluded(); answer with OnRoute or OnNoRoute
    kSendStarted,    // to the client
    kPull,           // carry out the plan's pull; `worker` receives
    kOpenDecode,     // on `worker`, attempt `attempt`, with `remote_prefill`
    kSendPrefill,    // to `worker`, with the ticket just received
    kForwardTokens,  // the tokens just received go to the client
    // The end of the choice goes to the client once report_pending() is false.
    kForwardFinished,
    kPrefillLocally,  // tell the decode worker that no KV will come
    kCancelPull,      // also forget the route: no call to its workers will follow
    kCancelDecode,    // the call of `attempt`
    kCancelPrefill,
    kAwaitReport,  // wait briefly for the report, then call OnReportOverdue
    kFinish,       // the request succeeded; the client gets the ends of choices that it lacks
    kFail,         // the client gets `status`
  };
  Kind kind;
  int32_t attempt = 0;
  WorkerNumber worker{0};
  bool remote_prefill = false;
  bool queues_for_kv = false;  // may wait, or has waited, until the worker has room for its KV
  absl::Status status = absl::OkStatus();
};
const char* FlowActionName(FlowAction::Kind kind);

class RequestFlow {
 public:
  using Actions = std::vector<FlowAction>;

  // `max_attempts`: decode workers in a row that may fail without a token. `max_resumes`: see
  // above.
  RequestFlow(int32_t max_attempts, int32_t max_resumes)
      : max_attempts_(max_attempts), max_resumes_(max_resumes) {}

  // `hand_offs_queue`: workers may queue this request until they have room for its KV.
  Actions Start(Placement placement = Placement::kAutomatic, bool hand_offs_queue = true);
  Actions OnRoute(const RoutePlan& plan);
  Actions OnNoRoute(absl::Status status);

  // `attempt` is the attempt of the kPull or kOpenDecode that the event belongs to.
  Actions OnPullEnded(int32_t attempt);  // successful or not
  Actions OnTicket(int32_t attempt);
  Actions OnTokens(int32_t attempt);
  Actions OnChoiceFinished(int32_t attempt);
  Actions OnDecodeFinished(int32_t attempt);  // after the last choice
  // The call ended before the last choice did.
  Actions OnDecodeFailed(int32_t attempt, absl::Status status);

  Actions OnPrefillDone(int32_t attempt);
  Actions OnPrefillFailed(int32_t attempt, absl::Status status);
  // Result of kPrefillLocally. OK and NotFound are both fine.
  Actions OnPrefillLocallyDone(int32_t attempt, absl::Status status);
  Actions OnReportOverdue();

  // The client is gone or its deadline has passed; `status` says which.
  Actions OnClientGone(absl::Status status);

  bool ended() const { return state_ == State::kEnded; }
  // Number of the latest route; 0 before the first.
  int32_t attempt() const { return attempt_; }
  // Where the next route must prefill.
  Placement placement() const { return placement_; }
  // Returns true if the next, or present, decode worker may queue a request whose KV comes from
  // elsewhere.
  bool queues_for_kv() const { return queueing_ == Queueing::kForKv; }
  // Returns true if the next route is for a prompt for which workers were chosen before, and which
  // none of them has computed.
  bool asked_before() const { return failures_ > 0; }
  // Returns true if the client has a part of the answer, so that a worker must resume it.
  bool resumes() const { return tokens_forwarded_; }
  // Returns true while the prefill worker's report, a part of each choice's ledger, may still come.
  bool report_pending() const { return prefill_ == PrefillState::kOpen && !ended(); }
  // Returns true while the answer of this attempt is not complete.
  bool Decodes(int32_t attempt) const { return Current(attempt); }
  // Returns true if another worker could take over after the loss of this attempt's decode worker.
  bool MayLoseDecode() const;
  // Number of decode workers lost in the middle of the answer.
  int32_t lost_workers() const { return lost_workers_; }
  // Decode workers that cannot take this request.
  const absl::flat_hash_set<WorkerNumber>& excluded() const { return excluded_; }

 private:
  enum class State : uint8_t { kNew, kRouting, kPulling, kDecoding, kAwaitingReport, kEnded };
  enum class PrefillState : uint8_t { kNone, kOpen, kReported, kLocal };

  // Where a request waits that no worker could take at once.
  enum class Queueing : uint8_t { kNone, kForKv, kLocally };

  // Returns true if another worker may succeed after `status`.
  bool WorthAnotherWorker(const absl::Status& status) const;
  // Returns the error for the client. If workers refuse to resume an answer, the request is not at
  // fault.
  absl::Status ForClient(const absl::Status& status) const;
  // Resets the failure count, because the lost worker had made progress.
  void Resume();
  bool Current(int32_t attempt) const { return state_ == State::kDecoding && attempt == attempt_; }
  void CancelOpenCalls(Actions& actions);
  FlowAction OpenDecode();
  Actions TryAnother(absl::Status status);
  // Failures in a row that end the request, or its present way to queue.
  int32_t MostFailures() const;
  bool MayQueue() const;
  Actions Queue();
  Actions Fail(absl::Status status);

  const int32_t max_attempts_;
  const int32_t max_resumes_;
  bool hand_offs_queue_ = true;
  State state_ = State::kNew;
  PrefillState prefill_ = PrefillState::kNone;
  bool decode_open_ = false;
  bool started_sent_ = false;
  bool tokens_forwarded_ = false;
  bool tokens_in_attempt_ = false;  // this attempt's worker sent tokens or the end of a choice
  bool prompt_is_there_ = false;    // on this attempt's worker, because it sent tokens
  Queueing queueing_ = Queueing::kNone;
  int32_t attempt_ = 0;
  int32_t failures_ = 0;  // in a row
  int32_t lost_workers_ = 0;
  Placement asked_placement_ = Placement::kAutomatic;
  Placement placement_ = Placement::kAutomatic;
  RoutePlan plan_;
  absl::flat_hash_set<WorkerNumber> excluded_;
  bool lacked_room_ = false;                            // some worker had none for the hand-off
  absl::flat_hash_set<WorkerNumber> refused_hand_off_;  // those workers, without dead ones
  absl::Status last_refusal_;
};

}  // namespace baton
