// One request at the router, without its I/O. It carries out the actions of RequestFlow. It holds
// the route, the counts that it has added to workers, and the answer as far as the client has it.
// The host that owns the connections makes the calls (GenerateCall or the simulation).
//
// Invariants, for every order of events:
// 1. What ChooseRoute counted on a worker is subtracted once the call there has ended or can no
//    longer be opened. The same holds for prompts to compute and for the request's place in the
//    queue.
// 2. A call is attached to the failure detector exactly while it is open.
//
// Thread safety: the host's lock. The session calls GenerateCalls from within events, under that
// lock. GenerateCalls must not call back before it returns.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/cache_key.h"
#include "router/answer_choices.h"
#include "router/failure_detector.h"
#include "router/load_shedder.h"
#include "router/request_flow.h"
#include "router/router_core.h"

namespace baton {

// The I/O of a session. The arguments of each call are in the session's route(), or in the event
// that is being handled.
class GenerateCalls {
 public:
  virtual ~GenerateCalls() = default;

  // Reports each action, for recorded histories.
  virtual void OnAction(const FlowAction&) {}
  // Reports that a route was chosen and nothing was sent yet.
  virtual void OnRouted(Route&) {}

  virtual void StartPull(int32_t attempt) = 0;
  virtual void OpenDecode(const FlowAction& action) = 0;
  virtual void SendPrefill(const FlowAction& action) = 0;  // with the ticket just received
  virtual void PrefillLocally(const FlowAction& action) = 0;
  // Cancel a call as if the other side had ended it. No effect if the call has ended or never
  // began.
  virtual void CancelPull() = 0;
  virtual void CancelDecode() = 0;
  virtual void CancelPrefill() = 0;
  virtual void AwaitReport() = 0;  // afterwards the host calls OnReportOverdue

  virtual void SendStarted() = 0;
  // Sends the tokens just received. Returns false if the client does not read.
  virtual bool SendTokens() = 0;
  virtual void KeepEnd() = 0;   // keeps the end of the choice that just ended, until SendEnds
  virtual void SendEnds() = 0;  // sends the kept ends that were not sent yet
  // Ends the client's stream with `status`; the last call. OK comes after the ends of all choices.
  virtual void End(const absl::Status& status) = 0;
};

class GenerateSession {
 public:
  struct Request {
    std::vector<TokenId> prompt;  // of a chunked prompt: the tokens of all parts
    std::vector<Hash128> prompt_hashes;
    CacheNamespace cache_namespace{0};
    AnswerChoices choices{1};
    int64_t new_tokens = 0;   // limit for one choice
    bool open_ended = false;  // the client set no limit
    Placement placement = Placement::kAutomatic;
    // Fingerprint of the model that the prompt was tokenised for; empty: any model.
    std::string model = {};
    uint64_t affinity_key = 0;
    // Null: an ordinary prompt. Otherwise prompt_hashes are those of the question, in the derived
    // namespace.
    std::shared_ptr<const ChunkedRequest> chunked = {};
  };

  // All pointers must outlive this.
  GenerateSession(RouterCore* core, FailureDetector* failure_detector, GenerateCalls* calls,
                  int32_t priority);
  GenerateSession(const GenerateSession&) = delete;

  // `listener` receives the failure detector's calls and passes them to OnWorkerSilent.
  void Start(Request request, std::shared_ptr<SilenceListener> listener);

  // `attempt` and `worker` belong to the call that the event is about.
  void OnPullEnd(int32_t attempt, bool receiver_gone, bool source_gone);
  void OnTicket(int32_t attempt);
  void OnTokens(int32_t attempt, int32_t choice, std::span<const TokenId> tokens,
                uint64_t logits_hash);
  void OnChoiceFinished(int32_t attempt, int32_t choice);
  void OnDecodeEnd(int32_t attempt, WorkerNumber worker, absl::Status status);
  void OnPrefillEnd(int32_t attempt, WorkerNumber worker, absl::Status status);
  void OnPrefillLocallyEnd(int32_t attempt, WorkerNumber worker, absl::Status status);
  void OnReportOverdue();
  void OnWorkerSilent(WorkerNumber worker);
  // The client is gone or its deadline has passed; `status` says which. May come before Start.
  void OnClientGone(absl::Status status);

  bool ended() const { return flow_.ended(); }
  int32_t attempt() const { return flow_.attempt(); }
  // Returns true if the request still needs the results of this attempt's calls.
  bool IsCurrent(int32_t attempt) const { return attempt == flow_.attempt() && !flow_.ended(); }
  // As RequestFlow::Decodes.
  bool Decodes(int32_t attempt) const { return flow_.Decodes(attempt); }
  int32_t lost_workers() const { return flow_.lost_workers(); }
  // Returns true if a prefill worker computed this attempt's prompt and has reported it.
  bool prefill_reported() const { return prefill_reported_; }
  const Route& route() const { return route_; }
  const Request& request() const { return request_; }
  // The parts of the answer from which this attempt's decode worker, and prefill worker, resume.
  std::span<const AnswerChoices::Choice> DecodeGoesOnBehind() const;
  std::span<const AnswerChoices::Choice> PrefillGoesOnBehind() const;
  // The prefix that this attempt's pull brings. REQUIRES: the plan has a pull.
  std::vector<TokenId> PulledTokens() const;
  // Length limit of an answer for which the client set no limit: the room that the first worker
  // had after the prompt. So the answer ends at the same token wherever it is resumed. Absent if
  // the client set a limit or no worker's room is known.
  std::optional<int32_t> MostNewTokens() const;

 private:
  struct Tokens {
    int32_t choice = 0;
    std::span<const TokenId> ids;
    uint64_t logits_hash = 0;
  };
  struct PullParties {
    WorkerNumber receiver{0};
    WorkerNumber source{0};
  };

  void Run(RequestFlow::Actions actions);
  RequestFlow::Actions ChooseRoute();
  void StartPull(const FlowAction& action);
  void CancelPull();
  void OpenDecode(const FlowAction& action);
  void SendPrefill(const FlowAction& action);
  void PrefillLocally(const FlowAction& action);
  void ForwardTokens();
  void ForwardFinished(int32_t attempt);
  void SendEnds();
  void End(const absl::Status& status);
  void RememberPrefixes();
  void AddPrefill();
  // The worker no longer counts the prompt as one to compute.
  void PrefillEnded();
  // The prefill worker will not be called.
  void PrefillNotExpected();
  void DetachPull();
  void WaitsNoMore(bool served);
  std::vector<Hash128> CommittedHashes(const AnswerChoices::Choice& choice) const;
  std::shared_ptr<SilenceListener> Listener() const { return listener_.lock(); }

  RouterCore* const core_;
  FailureDetector* const failure_detector_;
  GenerateCalls* const calls_;
  RequestFlow flow_;
  Request request_;
  std::weak_ptr<SilenceListener> listener_;
  std::optional<LoadShedder::Place> waiting_;  // place in the queue for the first token
  Route route_;
  Tokens tokens_;                // of the event that is being handled
  int32_t finished_choice_ = 0;  // of the event that is being handled
  // The request counts as active on the prefill worker, which was not called yet.
  bool prefill_expected_ = false;
  bool prefill_pending_ = false;  // the prompt counts as one to compute
  bool prefill_reported_ = false;
  std::optional<WorkerNumber> prefill_worker_;  // of the latest prefill call
  std::optional<PullParties> pull_;             // while the pull's call is open
};

}  // namespace baton
