// A simulated Generate call at the router. It connects one GenerateSession to simulated calls, as
// GenerateCall does in production.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "router/generate_session.h"
#include "tests/sim/sim_pull.h"
#include "tests/sim/sim_router.h"

namespace baton {

class SimRouter::Generation final : public SilenceListener,
                                    public std::enable_shared_from_this<Generation>,
                                    private GenerateCalls {
 public:
  Generation(SimRouter* router, std::shared_ptr<SimCall> call, SimGenerateRequest request,
             SimReader reader)
      : router_(router),
        call_(std::move(call)),
        request_(std::move(request)),
        reader_(std::move(reader)),
        session_(router->core_.get(), router->failure_detector_.get(), this, request_.priority) {}

  void Start() {
    call_->OnCalledOff([self = shared_from_this()] {
      self->session_.OnClientGone(absl::CancelledError("cancelled by the client"));
    });
    GenerateSession::Request asked{.prompt = request_.prompt,
                                   .prompt_hashes = {},
                                   .cache_namespace = request_.cache_namespace,
                                   .choices = AnswerChoices(request_.n),
                                   .new_tokens = request_.sampling.max_tokens.value_or(INT32_MAX),
                                   .placement = request_.placement};
    if (request_.chunked) {
      asked.chunked = std::make_shared<const ChunkedRequest>(
          *request_.chunked, request_.cache_namespace, router_->core_->PieceTokens());
      asked.prompt_hashes = ChainedHashes(asked.chunked->derived_namespace(),
                                          UnitsFromTokens(request_.chunked->question));
    } else {
      asked.prompt_hashes = ChainedHashes(request_.cache_namespace, UnitsFromTokens(asked.prompt));
    }
    session_.Start(std::move(asked), shared_from_this());
  }

  void OnWorkerSilent(WorkerNumber worker) override {
    Note("its worker is silent", 0, worker.value());
    session_.OnWorkerSilent(worker);
  }

 private:
  SimNode& node() { return router_->node(); }
  SimNetwork& network() { return *router_->environment_.network; }
  int64_t DeadlineUs() const {
    const int64_t left_ms = call_->MillisecondsLeft();
    return left_ms == 0 ? 0 : router_->node().queue().now_us() + left_ms * 1000;
  }

  // ---- events ----

  void OnDecodeEvent(int32_t attempt, SimDecodeEvent event) {
    event_ = std::move(event);
    if (std::holds_alternative<TransferTicket>(event_)) return session_.OnTicket(attempt);
    if (const auto* tokens = std::get_if<TokenOutput>(&event_)) {
      return session_.OnTokens(attempt, tokens->choice, tokens->token_ids, tokens->logits_hash);
    }
    session_.OnChoiceFinished(attempt, std::get<FinishInfo>(event_).choice);
  }
  void OnPullEnd(int32_t attempt, const SimPull::Outcome& outcome) {
    Note("pull ended", attempt, 0, outcome.status.ToString());
    session_.OnPullEnd(attempt, outcome.receiver_gone, outcome.source_gone);
  }

  // ---- calls ----

  void OnAction(const FlowAction& action) override {
    Note(FlowActionName(action.kind), action.attempt, action.worker.value());
  }
  void OnRouted(Route& route) override {
    router_->CheckBlockSizes(route);
    const auto tokens =
        static_cast<int32_t>(session_.request().choices.CommonTokens(request_.prompt).size());
    router_->DrawPull(request_, tokens - 1, route);
  }

  void StartPull(int32_t attempt) override {
    const Route& route = session_.route();
    PullRequest request{.tokens = {},
                        .cache_namespace = request_.cache_namespace,
                        .timeout_ms = PullTimeoutMs(router_->options_, *route.plan.pull)};
    if (request_.chunked) {
      request.chunked = session_.request().chunked->WithChunks(route.pulled_chunks);
    } else {
      request.tokens = session_.PulledTokens();
    }
    const int64_t give_up_us = node().queue().now_us() + request.timeout_ms * 1000;
    const int64_t deadline_us = DeadlineUs();
    const auto worker_at = router_->environment_.worker_at;
    pull_ =
        SimPull::Start({.network = &network(),
                        .router = node().id(),
                        .receiver = worker_at(route.prefiller_address()),
                        .source = worker_at(route.pull_source_address),
                        .number = request_.number},
                       request, deadline_us == 0 ? give_up_us : std::min(give_up_us, deadline_us),
                       // Weak, because pull_ would otherwise own itself through this callback. This
                       // object lives as long as it waits for the end.
                       [weak = weak_from_this(), attempt](const SimPull::Outcome& outcome) {
                         if (const auto self = weak.lock()) self->OnPullEnd(attempt, outcome);
                       });
  }
  void CancelPull() override { pull_->Cancel(); }

  // Fills the request fields that decode and prefill workers share.
  template <typename WorkerRequest>
  WorkerRequest Describe() const {
    WorkerRequest request;
    request.request_id = absl::StrCat("r", request_.number);
    request.prompt = request_.prompt;
    request.chunked = request_.chunked;
    request.n = request_.n;
    request.sampling = request_.sampling;
    request.cache_namespace = request_.cache_namespace;
    request.priority = request_.priority;
    return request;
  }

  void OpenDecode(const FlowAction& action) override {
    if (action.attempt > 1) router_->retried_.insert(request_.number);
    auto request = Describe<GenerateRequest>();
    for (const AnswerChoices::Choice& choice : session_.DecodeGoesOnBehind()) {
      request.generated.push_back(Part(choice));
    }
    request.remote_prefill = action.remote_prefill;
    request.queues_for_kv = action.queues_for_kv;
    SimWorker* const worker = router_->environment_.worker_at(session_.route().decode_address);
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
          self->Note("decode ended", action.attempt, 0, status.ToString());
          self->session_.OnDecodeEnd(action.attempt, action.worker, std::move(status));
        });
  }
  void CancelDecode() override { decode_->Cancel(); }

  void SendPrefill(const FlowAction& action) override {
    ticket_ = std::get<TransferTicket>(event_);
    auto request = Describe<PrefillRequest>();
    for (const AnswerChoices::Choice& choice : session_.PrefillGoesOnBehind()) {
      request.generated = Part(choice);
    }
    request.ticket = ticket_;
    SimWorker* const worker = router_->environment_.worker_at(session_.route().prefill_address);
    prefill_ = SimCall::Start(
        network(), node().id(), worker->node().id(), MessageKind::kCall, DeadlineUs(),
        [worker, number = request_.number, request](const std::shared_ptr<SimCall>& call) {
          worker->Prefill(call, number, request);
        },
        [self = shared_from_this(), action](absl::Status status) {
          self->Note("prefill ended", action.attempt, 0, status.ToString());
          self->session_.OnPrefillEnd(action.attempt, action.worker, std::move(status));
        });
  }
  void CancelPrefill() override { prefill_->Cancel(); }

  void PrefillLocally(const FlowAction& action) override {
    SimWorker* const worker = router_->environment_.worker_at(session_.route().decode_address);
    SimCall::Start(
        network(), node().id(), worker->node().id(), MessageKind::kCall, DeadlineUs(),
        [worker, ticket = ticket_](const std::shared_ptr<SimCall>& call) {
          worker->PrefillLocally(call, ticket.transfer_id, ticket.receiver_epoch);
        },
        [self = shared_from_this(), action](absl::Status status) {
          self->session_.OnPrefillLocallyEnd(action.attempt, action.worker, std::move(status));
        });
  }

  void AwaitReport() override {
    node().Post(router_->options_.report_wait_ms * 1000,
                [self = shared_from_this()] { self->session_.OnReportOverdue(); });
  }

  void SendStarted() override { Send(SimStarted()); }
  bool SendTokens() override { return Send(std::get<TokenOutput>(event_)); }
  void KeepEnd() override { ends_.push_back(std::get<FinishInfo>(event_)); }
  void SendEnds() override {
    for (const FinishInfo& end : std::exchange(ends_, {})) Send(end);
  }
  void End(const absl::Status& status) override {
    Note("ends", 0, 0, status.ToString());
    call_->Finish(status);
  }

  static GeneratedPart Part(const AnswerChoices::Choice& choice) {
    return {
        .tokens = choice.tokens, .logits_hash = choice.logits_hash, .finished = choice.finished};
  }

  // Returns false if the client has left too many messages unread.
  bool Send(SimResponse response) {
    if (*reader_.unread >= reader_.max_unread) {  // ends the stream; a later End has no effect
      call_->Finish(absl::ResourceExhaustedError("the client has too many unread messages"));
      return false;
    }
    ++*reader_.unread;
    call_->Send(MessageKind::kCall, [on_response = reader_.on_response,
                                     response = std::move(response)] { on_response(response); });
    return true;
  }

  void Note(const char* what, int64_t a = 0, int64_t b = 0, std::string detail = {}) {
    node().Note(request_.number, what, a, b, std::move(detail));
  }

  SimRouter* const router_;
  const std::shared_ptr<SimCall> call_;
  const SimGenerateRequest request_;
  const SimReader reader_;
  GenerateSession session_;
  SimDecodeEvent event_;
  TransferTicket ticket_;
  std::vector<FinishInfo> ends_;
  std::shared_ptr<SimPull> pull_;
  std::shared_ptr<SimCall> decode_;
  std::shared_ptr<SimCall> prefill_;
};

}  // namespace baton
