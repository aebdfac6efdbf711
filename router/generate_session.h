// One request at the router, without its I/O: carries out what RequestFlow says. The route, the
// account of what was promised to which worker, and the answer as far as the client has it stand
// here; whoever has the wires (GenerateCall, the simulation) does the calls.
//
// Invariants, whatever the order of events:
//  1. What ChooseRoute counted on workers is counted off once each call there has ended, or was
//     never opened; the same holds for prompts to be computed, and for the line of those who wait.
//  2. The watch knows of each open call and of no other.
//
// Thread safety: the host's lock. GenerateCalls are called from within events, under that lock, and
// must not call back on the spot.
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

// The I/O of a session. What each concerns is in the session's route(), or in the event that is
// being handled.
class GenerateCalls {
 public:
  virtual ~GenerateCalls() = default;

  // Each action as it comes up, for histories.
  virtual void OnAction(const FlowAction&) {}
  // A route was chosen, and nothing was sent yet.
  virtual void OnRouted(Route&) {}

  virtual void StartPull(int32_t attempt) = 0;
  virtual void OpenDecode(const FlowAction& action) = 0;
  virtual void SendPrefill(const FlowAction& action) = 0;  // with the ticket just received
  virtual void PrefillLocally(const FlowAction& action) = 0;
  // As if the other side had ended them; nothing where it has, or where there is none.
  virtual void CancelPull() = 0;
  virtual void CancelDecode() = 0;
  virtual void CancelPrefill() = 0;
  virtual void AwaitReport() = 0;  // then call OnReportOverdue

  virtual void SendStarted() = 0;
  virtual bool SendTokens() = 0;  // those just received; false when the client does not read
  virtual void KeepEnd() = 0;     // the end of a choice just received, until SendEnds
  virtual void SendEnds() = 0;    // those that were kept and not sent yet
  // The last call: what the client is told. OK behind all ends.
  virtual void End(const absl::Status& status) = 0;
};

class GenerateSession {
 public:
  struct Request {
    std::vector<TokenId> prompt;
    std::vector<Hash128> prompt_hashes;
    CacheNamespace cache_namespace{0};
    AnswerChoices choices{1};
    int64_t new_tokens = 0;   // of a choice, at most
    bool open_ended = false;  // the client named no limit
    Placement placement = Placement::kAutomatic;
    // Whose tokens the prompt's are: its fingerprint; empty: of whoever is there.
    std::string model = {};
    uint64_t affinity_key = 0;
  };

  // All outlive this.
  GenerateSession(RouterCore* core, FailureDetector* failure_detector, GenerateCalls* calls,
                  int32_t priority);
  GenerateSession(const GenerateSession&) = delete;

  // `listener` hears of silent workers, and passes it on to OnWorkerSilent.
  void Start(Request request, std::shared_ptr<SilenceListener> listener);

  // `attempt` and `worker` are those of the call which the event belongs to.
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
  // The client is gone, or its deadline has passed: `status` says which. Before Start too.
  void OnClientGone(absl::Status status);

  bool ended() const { return flow_.ended(); }
  int32_t attempt() const { return flow_.attempt(); }
  // Somebody waits for what a call of this attempt brings.
  bool IsCurrent(int32_t attempt) const { return attempt == flow_.attempt() && !flow_.ended(); }
  int32_t lost_workers() const { return flow_.lost_workers(); }
  // This attempt's prompt was computed by a prefill worker that has said so.
  bool prefill_reported() const { return prefill_reported_; }
  const Route& route() const { return route_; }
  const Request& request() const { return request_; }
  // What the decode worker, and the prefill worker, of this attempt go on behind.
  std::span<const AnswerChoices::Choice> DecodeGoesOnBehind() const;
  std::span<const AnswerChoices::Choice> PrefillGoesOnBehind() const;
  // The prefix that this attempt's pull brings. REQUIRES: the plan has a pull.
  std::vector<TokenId> PulledTokens() const;
  // Where an answer without a limit of the client ends, in tokens behind the prompt: where the
  // worker that began it would have ended it, whichever worker goes on. None: the client's limit
  // counts, or no worker's room is known.
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
  // The prompt does not wait on its worker any more.
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
  std::optional<LoadShedder::Place> waiting_;  // for the first token
  Route route_;
  Tokens tokens_;                  // of the event being handled
  int32_t finished_choice_ = 0;    // likewise
  bool prefill_expected_ = false;  // counted as active on the prefill worker, not yet called
  bool prefill_pending_ = false;   // counted as to be computed
  bool prefill_reported_ = false;
  std::optional<WorkerNumber> prefill_worker_;  // of the latest call
  std::optional<PullParties> pull_;             // while its call is open
};

}  // namespace baton
