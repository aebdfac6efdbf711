// A simulated Generate call at the router: the host of one RequestFlow, what GenerateCall is in
// production (router/generate_call.cc), and has to follow it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "router/answer_choices.h"
#include "tests/sim/sim_pull.h"
#include "tests/sim/sim_router.h"

namespace baton {

class SimRouter::Generation final : public SilenceListener,
                                    public std::enable_shared_from_this<Generation> {
  using Kind = FlowAction::Kind;

 public:
  Generation(SimRouter* router, std::shared_ptr<SimCall> call, SimGenerateRequest request,
             SimReader reader)
      : router_(router),
        call_(std::move(call)),
        request_(std::move(request)),
        reader_(std::move(reader)),
        hashes_(ChainedHashes(request_.cache_namespace, UnitsFromTokens(request_.prompt))),
        flow_(router->options_.decode_attempts, router->options_.max_resumes),
        choices_(request_.n) {
    core().RequestStarted();
  }

  void Start() {
    call_->OnCalledOff([self = shared_from_this()] {
      self->Run(self->flow_.OnClientGone(absl::CancelledError("cancelled by the client")));
    });
    Run(flow_.Start(request_.placement));
  }

  void OnWorkerSilent(WorkerNumber worker) override {
    Note("its worker is silent", 0, worker.value());
    const bool pulls = pull_ != nullptr && route_.plan.pull.has_value();
    if (pulls && (worker == route_.plan.prefiller() || worker == route_.plan.pull->from)) {
      pull_->Cancel();  // the answer goes on without
    }
    if (decode_ != nullptr && worker == route_.plan.decode && flow_.MayLoseDecode())
      decode_->Cancel();
    if (prefill_ != nullptr && worker == prefill_worker_) prefill_->Cancel();
  }

 private:
  RouterCore& core() { return *router_->core_; }
  WorkerWatch& watch() { return *router_->watch_; }
  SimNode& node() { return router_->node(); }
  SimNetwork& network() { return *router_->environment_.network; }
  int64_t DeadlineUs() const {
    const int64_t left_ms = call_->MillisecondsLeft();
    return left_ms == 0 ? 0 : router_->node().queue().now_us() + left_ms * 1000;
  }

  // ---- events ----

  void OnDecodeEvent(int32_t attempt, SimDecodeEvent event) {
    event_ = std::move(event);
    if (std::holds_alternative<TransferTicket>(event_)) {
      ticket_ = std::get<TransferTicket>(event_);
      return Run(flow_.OnTicket(attempt));
    }
    if (std::holds_alternative<TokenOutput>(event_)) return Run(flow_.OnTokens(attempt));
    Run(flow_.OnChoiceFinished(attempt));
  }
  void OnDecodeEnd(int32_t attempt, WorkerNumber worker, absl::Status status) {
    core().WorkerDone(worker);
    watch().Detach(worker, this);
    if (attempt == flow_.attempt()) {
      PrefillEnded();
      if (prefill_expected_) core().WorkerDone(*route_.plan.prefill);
      prefill_expected_ = false;
    }
    if (absl::IsUnavailable(status)) core().MarkUnreachable(worker);
    Note("decode ended", attempt, 0, status.ToString());
    Run(flow_.OnDecodeFailed(attempt, std::move(status)));
  }
  void OnPrefillEnd(int32_t attempt, WorkerNumber worker, absl::Status status) {
    core().WorkerDone(worker);
    watch().Detach(worker, this);
    if (attempt == flow_.attempt()) PrefillEnded();
    Note("prefill ended", attempt, 0, status.ToString());
    if (!status.ok()) {
      if (absl::IsUnavailable(status)) core().MarkUnreachable(worker);
      Run(flow_.OnPrefillFailed(attempt, std::move(status)));
      return SendEnds();
    }
    prefill_reported_ = prefill_reported_ || attempt == flow_.attempt();
    Run(flow_.OnPrefillDone(attempt));
    SendEnds();
  }

  // ---- actions ----

  void Run(RequestFlow::Actions actions) {
    for (size_t i = 0; i < actions.size(); ++i) {
      const FlowAction action = actions[i];
      Note(FlowActionName(action.kind), action.attempt, action.worker.value());
      switch (action.kind) {
        case Kind::kChooseRoute:
          actions = ChooseRoute();
          i = static_cast<size_t>(-1);
          break;
        case Kind::kSendStarted:
          Send(SimStarted());
          break;
        case Kind::kPull:
          Pull(action);
          break;
        case Kind::kCancelPull:
          CancelPull();
          break;
        case Kind::kOpenDecode:
          OpenDecode(action);
          break;
        case Kind::kSendPrefill:
          SendPrefill(action);
          break;
        case Kind::kForwardTokens:
          ForwardTokens();
          break;
        case Kind::kForwardFinished:
          ForwardFinished(action.attempt);
          break;
        case Kind::kPrefillLocally:
          PrefillLocally(action);
          break;
        case Kind::kCancelDecode:
          decode_->Cancel();
          break;
        case Kind::kCancelPrefill:
          prefill_->Cancel();
          break;
        case Kind::kAwaitReport:
          node().Post(router_->options_.report_wait_ms * 1000,
                      [self = shared_from_this()] { self->Run(self->flow_.OnReportOverdue()); });
          break;
        case Kind::kFinish:
          RememberPrefixes();
          SendEnds();
          End(absl::OkStatus());
          break;
        case Kind::kFail:
          End(action.status);
          break;
      }
    }
  }

  RequestFlow::Actions ChooseRoute() {
    PrefillEnded();
    SendEnds();
    const bool goes_on = flow_.resumes() && request_.n == 1;
    const std::vector<Hash128> hashes = goes_on ? CommittedHashes(choices_.all().front()) : hashes_;
    absl::StatusOr<Route> route = core().ChooseRoute(
        {.prompt_hashes = hashes,
         .prompt_tokens = static_cast<int32_t>(choices_.TokensToGoOn(request_.prompt)),
         .placement = flow_.placement(),
         .excluded = flow_.excluded(),
         .fingerprint = flow_.resumes() ? route_.decode_fingerprint : ""});
    if (!route.ok()) return flow_.OnNoRoute(route.status());
    route_ = *std::move(route);
    router_->DrawPull(request_.number,
                      static_cast<int32_t>(choices_.CommonTokens(request_.prompt).size()) - 1,
                      route_);
    prefill_pending_ = true;
    prefill_expected_ = route_.plan.prefill.has_value();
    return flow_.OnRoute(route_.plan);
  }

  void Pull(const FlowAction& action) {
    PullRequest request{.tokens = choices_.CommonTokens(request_.prompt),
                        .cache_namespace = request_.cache_namespace,
                        .timeout_ms = router_->options_.pull_least_ms};
    request.tokens.resize(static_cast<size_t>(route_.plan.pull->tokens));
    const int64_t give_up_us = node().queue().now_us() + request.timeout_ms * 1000;
    const int64_t deadline_us = DeadlineUs();
    const auto worker_at = router_->environment_.worker_at;
    const WorkerNumber receiver = route_.plan.prefiller();
    const WorkerNumber source = route_.plan.pull->from;
    const Epoch receiver_epoch = route_.plan.prefill ? route_.prefill_epoch : route_.decode_epoch;
    watch().Attach({receiver, receiver_epoch, route_.prefiller_address()}, shared_from_this());
    watch().Attach({source, route_.pull_source_epoch, route_.pull_source_address},
                   shared_from_this());
    pull_ =
        SimPull::Start({.network = &network(),
                        .router = node().id(),
                        .receiver = worker_at(route_.prefiller_address()),
                        .source = worker_at(route_.pull_source_address),
                        .number = request_.number},
                       request, deadline_us == 0 ? give_up_us : std::min(give_up_us, deadline_us),
                       // Alive as long as it listens; and pull_ would hold itself.
                       [weak = weak_from_this(), attempt = action.attempt, receiver,
                        source](const SimPull::Outcome& outcome) {
                         const std::shared_ptr<Generation> self = weak.lock();
                         if (self == nullptr) return;
                         self->watch().Detach(receiver, self.get());
                         self->watch().Detach(source, self.get());
                         self->OnPullEnd(attempt, outcome);
                       });
  }

  void OnPullEnd(int32_t attempt, const SimPull::Outcome& outcome) {
    Note("pull ended", attempt, 0, outcome.status.ToString());
    if (attempt != flow_.attempt() || flow_.ended()) return;
    if (outcome.receiver_gone) core().MarkUnreachable(route_.plan.prefiller());
    if (outcome.source_gone) core().MarkUnreachable(route_.plan.pull->from);
    Run(flow_.OnPullEnded(attempt));
  }

  void CancelPull() {
    pull_->Cancel();
    PrefillEnded();
    core().WorkerDone(route_.plan.decode);
    if (prefill_expected_) core().WorkerDone(*route_.plan.prefill);
    prefill_expected_ = false;
  }

  void OpenDecode(const FlowAction& action) {
    prefill_reported_ = false;
    GenerateRequest request;
    request.request_id = absl::StrCat("r", request_.number);
    request.prompt = request_.prompt;
    request.n = request_.n;
    if (flow_.resumes()) {
      for (const AnswerChoices::Choice& choice : choices_.all()) {
        request.generated.push_back(Part(choice));
      }
    }
    request.sampling = request_.sampling;
    request.cache_namespace = request_.cache_namespace;
    request.priority = request_.priority;
    request.remote_prefill = action.remote_prefill;
    SimWorker* const worker = router_->environment_.worker_at(route_.decode_address);
    watch().Attach({action.worker, route_.decode_epoch, route_.decode_address}, shared_from_this());
    const auto on_event = [self = shared_from_this(),
                           attempt = action.attempt](SimDecodeEvent event) {
      self->OnDecodeEvent(attempt, std::move(event));
    };
    decode_ = SimCall::Start(
        network(), node().id(), worker->node().id(), MessageKind::kCall, DeadlineUs(),
        [worker, number = request_.number, request,
         on_event](const std::shared_ptr<SimCall>& call) {
          worker->Decode(call, number, request, on_event);
        },
        [self = shared_from_this(), action](absl::Status status) {
          self->OnDecodeEnd(action.attempt, action.worker, std::move(status));
        });
  }

  void SendPrefill(const FlowAction& action) {
    prefill_expected_ = false;  // OnPrefillEnd counts it off
    prefill_worker_ = action.worker;
    watch().Attach({action.worker, route_.prefill_epoch, route_.prefill_address},
                   shared_from_this());
    PrefillRequest request;
    request.request_id = absl::StrCat("r", request_.number);
    request.prompt = request_.prompt;
    request.n = request_.n;
    if (flow_.resumes() && request_.n == 1) request.generated = Part(choices_.all().front());
    request.sampling = request_.sampling;
    request.cache_namespace = request_.cache_namespace;
    request.priority = request_.priority;
    request.ticket = ticket_;
    SimWorker* const worker = router_->environment_.worker_at(route_.prefill_address);
    prefill_ = SimCall::Start(
        network(), node().id(), worker->node().id(), MessageKind::kCall, DeadlineUs(),
        [worker, number = request_.number, request](const std::shared_ptr<SimCall>& call) {
          worker->Prefill(call, number, request);
        },
        [self = shared_from_this(), action](absl::Status status) {
          self->OnPrefillEnd(action.attempt, action.worker, std::move(status));
        });
  }

  void PrefillLocally(const FlowAction& action) {
    route_.plan.prefill.reset();
    core().PrefillMoved(route_.plan);
    prefill_pending_ = true;
    SimWorker* const worker = router_->environment_.worker_at(route_.decode_address);
    SimCall::Start(
        network(), node().id(), worker->node().id(), MessageKind::kCall, DeadlineUs(),
        [worker, ticket = ticket_](const std::shared_ptr<SimCall>& call) {
          worker->PrefillLocally(call, ticket.transfer_id, ticket.receiver_epoch);
        },
        [self = shared_from_this(), action](absl::Status status) {
          if (absl::IsUnavailable(status)) self->core().MarkUnreachable(action.worker);
          self->Run(self->flow_.OnPrefillLocallyDone(action.attempt, std::move(status)));
        });
  }

  void ForwardTokens() {
    PrefillEnded();
    const TokenOutput tokens = std::get<TokenOutput>(event_);
    const absl::Status taken =
        choices_.TakeTokens(tokens.choice, tokens.token_ids, tokens.logits_hash);
    if (!taken.ok()) return Run(flow_.OnClientGone(taken));
    if (Send(tokens)) return;
    Run(flow_.OnClientGone(absl::ResourceExhaustedError("the client does not read its answer")));
  }

  void ForwardFinished(int32_t attempt) {
    const FinishInfo info = std::get<FinishInfo>(event_);
    const absl::Status taken = choices_.TakeFinish(info.choice);
    if (!taken.ok()) return Run(flow_.OnClientGone(taken));
    ends_.push_back(info);
    if (choices_.all_finished()) return Run(flow_.OnDecodeFinished(attempt));
    SendEnds();
  }

  void SendEnds() {
    if (flow_.report_pending()) return;
    for (const FinishInfo& end : std::exchange(ends_, {})) Send(end);
  }

  static GeneratedPart Part(const AnswerChoices::Choice& choice) {
    return {
        .tokens = choice.tokens, .logits_hash = choice.logits_hash, .finished = choice.finished};
  }

  // False once too much waits for the client.
  bool Send(SimResponse response) {
    if (*reader_.unread >= reader_.max_unread) {  // ends the stream, whatever End says later
      call_->Finish(absl::ResourceExhaustedError("the client left too much unread"));
      return false;
    }
    ++*reader_.unread;
    call_->Send(MessageKind::kCall, [on_response = reader_.on_response,
                                     response = std::move(response)] { on_response(response); });
    return true;
  }

  void End(const absl::Status& status) {
    Note("ends", 0, 0, status.ToString());
    call_->Finish(status);
    core().RequestEnded(status.ok() || absl::IsCancelled(status));
  }

  void RememberPrefixes() {
    if (prefill_reported_) core().Remember(*route_.plan.prefill, hashes_);
    for (const AnswerChoices::Choice& choice : choices_.all()) {
      core().Remember(route_.plan.decode, CommittedHashes(choice));
    }
  }

  std::vector<Hash128> CommittedHashes(const AnswerChoices::Choice& choice) const {
    return ChainedHashes(request_.cache_namespace,
                         UnitsFromTokens(AnswerChoices::Committed(request_.prompt, choice)));
  }

  void PrefillEnded() {
    if (prefill_pending_) core().PrefillDone(route_.plan);
    prefill_pending_ = false;
  }

  void Note(const char* what, int64_t a = 0, int64_t b = 0, std::string detail = {}) {
    node().Note(request_.number, what, a, b, std::move(detail));
  }

  SimRouter* const router_;
  const std::shared_ptr<SimCall> call_;
  const SimGenerateRequest request_;
  const SimReader reader_;
  const std::vector<Hash128> hashes_;
  RequestFlow flow_;
  AnswerChoices choices_;
  Route route_;
  bool prefill_expected_ = false;
  bool prefill_pending_ = false;
  bool prefill_reported_ = false;
  SimDecodeEvent event_;
  TransferTicket ticket_;
  std::vector<FinishInfo> ends_;
  std::shared_ptr<SimPull> pull_;
  std::shared_ptr<SimCall> decode_;
  std::shared_ptr<SimCall> prefill_;
  WorkerNumber prefill_worker_{0};
};

}  // namespace baton
