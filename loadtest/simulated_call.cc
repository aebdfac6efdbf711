#include "loadtest/simulated_call.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "routing/affinity_policies.h"

namespace baton {

SimulatedFleet::Call::Call(SimulatedFleet* fleet, Router* router, DueRequest due)
    : fleet_(fleet),
      router_(router),
      due_(std::move(due)),
      prompt_(AllTokens(due_.request)),
      timer_(due_.request, due_.intended_us, fleet->NowUs()),
      session_(router->core.get(), &router->failure_detector, this, /*priority=*/0) {}

void SimulatedFleet::Call::Start() {
  GenerateSession::Request asked{
      .prompt = prompt_,
      .prompt_hashes = ChainedHashes(kSimulatedNamespace, UnitsFromTokens(prompt_)),
      .cache_namespace = kSimulatedNamespace,
      .choices = AnswerChoices(1),
      .new_tokens = due_.request.output_tokens};
  const int64_t conversation = due_.request.conversation;
  const std::string session = conversation < 0 ? "" : absl::StrCat(conversation);
  asked.affinity_key = AffinityKey(kSimulatedNamespace, session, asked.prompt_hashes,
                                   fleet_->options_.routing.affinity_tokens);
  if (fleet_->options_.keeps_least_work) {
    fleet_->NoteLeastWork(due_, asked.prompt_hashes, static_cast<int32_t>(prompt_.size()));
  }
  session_.Start(std::move(asked), shared_from_this());
}

std::vector<Hash128> SimulatedFleet::Call::Hashes() const {
  std::vector<TokenId> tokens = prompt_;
  tokens.insert(tokens.end(), answer_.begin(), answer_.end());
  return ChainedHashes(kSimulatedNamespace, UnitsFromTokens(tokens));
}

AnswerContent SimulatedFleet::Call::Content() const {
  const RequestRecord& record = timer_.record();
  return {.whole = record.outcome == RequestOutcome::kWhole,
          .text = {},
          .tokens = answer_,
          .prompt_tokens = static_cast<int32_t>(prompt_.size()),
          .output_tokens = static_cast<int32_t>(answer_.size())};
}

// ---- actions of the session ---------------------------------------------------------------------

void SimulatedFleet::Call::OnAction(const FlowAction& action) {
  if (action.kind != FlowAction::Kind::kChooseRoute) return;
  FleetTruth& truth = fleet_->truth_;
  truth.request = id();
  truth.output_tokens = due_.request.output_tokens;
  truth.now_us = fleet_->clock_.NowUs();
  if (fleet_->wall_ != nullptr) asked_us_ = fleet_->wall_->NowUs();
}

void SimulatedFleet::Call::OnRouted(Route& route) {
  FleetFigures& figures = fleet_->figures_;
  ++figures.decisions;
  if (fleet_->wall_ != nullptr) {
    figures.deciding_s += static_cast<double>(fleet_->wall_->NowUs() - asked_us_) / 1e6;
  }
  routed_us_ = fleet_->NowUs();
  figures.prefilled_by[static_cast<size_t>(due_.order)] = WorkerOf(route.plan.prefiller());
}

void SimulatedFleet::Call::StartPull(int32_t attempt) {
  const RoutePlan& plan = session_.route().plan;
  SimulatedWorker& receiver = fleet_->At(WorkerOf(plan.prefiller()));
  const int32_t tokens =
      receiver.BeginPull(id(), prompt_, plan.pull->tokens, fleet_->At(WorkerOf(plan.pull->from)));
  const int64_t bytes = tokens * fleet_->times_->profile().kv_bytes_per_token;
  ++fleet_->figures_.pulls;
  fleet_->figures_.pulled_tokens += tokens;
  Later(fleet_->ShippingUs(bytes) + fleet_->options_.call_us,
        [attempt, tokens, began_us = fleet_->NowUs()](Call& call) {
          call.PullEnded(attempt, tokens, began_us);
        });
}

void SimulatedFleet::Call::OpenDecode(const FlowAction& action) {
  decode_number_ = action.worker;
  decode_worker_ = WorkerOf(action.worker);
  decode_open_ = true;
  const int32_t attempt = action.attempt;
  absl::Status status;
  bool has_room = false;
  waited_for_room_us_ = 0;
  if (action.remote_prefill) {
    const absl::StatusOr<bool> taken =
        Decode().AwaitKv(id(), prompt_, due_.request.output_tokens, action.queues_for_kv);
    status = taken.status();
    has_room = taken.value_or(false);
  } else {
    status = Decode().Generate(id(), prompt_, due_.request.output_tokens);
  }
  if (!status.ok()) {
    Later(fleet_->options_.call_us, [attempt, status](Call& call) {
      call.decode_open_ = false;
      call.session_.OnDecodeEnd(attempt, call.decode_number_, status);
    });
  } else if (has_room) {
    OnRoomForKv();
  } else {
    fleet_->Wake(decode_worker_);
  }
}

void SimulatedFleet::Call::OnRoomForKv() {
  const PromptProgress& progress = Decode().ProgressOf(id());
  decode_cached_ = progress.cached_tokens;
  waited_for_room_us_ = fleet_->clock_.NowUs() - progress.queued_us;
  const int32_t attempt = session_.attempt();
  Later(0, [attempt](Call& call) { call.session_.OnTicket(attempt); });
}

void SimulatedFleet::Call::SendPrefill(const FlowAction& action) {
  const int32_t worker = WorkerOf(action.worker);
  const absl::Status status = fleet_->At(worker).Prefill(id(), prompt_);
  if (status.ok()) {
    prefill_worker_ = worker;
    fleet_->Wake(worker);
    return;
  }
  Later(0, [attempt = action.attempt, number = action.worker, status](Call& call) {
    call.session_.OnPrefillEnd(attempt, number, status);
  });
}

void SimulatedFleet::Call::PrefillLocally(const FlowAction& action) {
  Decode().KvLost(id());
  fleet_->Wake(decode_worker_);
  Later(0, [attempt = action.attempt](Call& call) {
    call.session_.OnPrefillLocallyEnd(attempt, call.decode_number_, absl::OkStatus());
  });
}

void SimulatedFleet::Call::CancelDecode() {
  if (!std::exchange(decode_open_, false)) return;
  Later(0, [attempt = session_.attempt()](Call& call) {
    call.session_.OnDecodeEnd(attempt, call.decode_number_, absl::CancelledError("ended"));
  });
}

void SimulatedFleet::Call::AwaitReport() {
  Later(fleet_->options_.call_us, [](Call& call) { call.session_.OnReportOverdue(); });
}

// ---- events of workers --------------------------------------------------------------------------

void SimulatedFleet::Call::PullEnded(int32_t attempt, int32_t tokens, int64_t began_us) {
  const WorkerNumber receiver = session_.route().plan.prefiller();
  if (tokens > 0) {
    fleet_->At(WorkerOf(receiver)).EndPull(id());
    fleet_->Publish(WorkerOf(receiver));
  }
  pull_us_ = fleet_->NowUs() - began_us;
  const int64_t bytes = tokens * fleet_->times_->profile().kv_bytes_per_token;
  router_->core->Learn(FinishedPull{.receiver = receiver,
                                    .us = pull_us_,
                                    .kv_bytes = bytes,
                                    .kv_transfer_us = fleet_->ShippingUs(bytes)});
  session_.OnPullEnd(attempt, /*receiver_gone=*/false, /*source_gone=*/false);
}

void SimulatedFleet::Call::OnStep(int32_t worker, const SimulatedWorker::StepEvent& event) {
  if (worker == prefill_worker_) return Prefilled(worker);
  if (event.is_first_token) {
    progress_ = Decode().ProgressOf(id());
    prefilled_us_ = fleet_->clock_.NowUs();
    ++fleet_->figures_.local_prefills;
  }
  if (!event.exhausted) return TakeToken(event.ended);
  session_.OnChoiceFinished(session_.attempt(), 0);
}

void SimulatedFleet::Call::Prefilled(int32_t worker) {
  prefill_worker_ = -1;
  progress_ = fleet_->At(worker).ProgressOf(id());
  progress_.queued_us -= waited_for_room_us_;
  prefilled_us_ = fleet_->clock_.NowUs();
  const int64_t lacking = static_cast<int64_t>(prompt_.size()) - decode_cached_;
  kv_bytes_ = lacking * fleet_->times_->profile().kv_bytes_per_token;
  kv_transfer_us_ = fleet_->ShippingUs(kv_bytes_);
  const int64_t shipped_us = std::max(prefilled_us_, progress_.started_us + kv_transfer_us_);
  Later(shipped_us - prefilled_us_ + fleet_->options_.call_us,
        [](Call& call) { call.KvArrived(); });
  const auto number = WorkerNumber(static_cast<uint32_t>(worker + 1));
  session_.OnPrefillEnd(session_.attempt(), number, absl::OkStatus());
}

void SimulatedFleet::Call::KvArrived() {
  const bool ended = Decode().KvArrived(id());
  fleet_->Publish(decode_worker_);
  TakeToken(ended);
  fleet_->Wake(decode_worker_);
}

void SimulatedFleet::Call::TakeToken(bool ended) {
  const bool is_first = answer_.empty();
  answer_.push_back(AnswerToken(id(), static_cast<int32_t>(answer_.size())));
  last_token_us_ = fleet_->NowUs();
  timer_.OnContent(last_token_us_, 1);
  const int32_t attempt = session_.attempt();
  if (is_first) {
    first_token_us_ = last_token_us_;
    session_.OnTokens(attempt, 0, answer_, 0);
  }
  if (!ended) return;
  // The session needs the tokens between only to resume an answer.
  if (answer_.size() > 1) session_.OnTokens(attempt, 0, std::span(answer_).subspan(1), 0);
  session_.OnChoiceFinished(attempt, 0);
}

// ---- the end ------------------------------------------------------------------------------------

void SimulatedFleet::Call::Learn() {
  const auto tokens = static_cast<int64_t>(answer_.size());
  const RoutePlan& plan = session_.route().plan;
  const bool elsewhere = session_.prefill_reported();
  router_->core->Learn(FinishedRequest{
      .decode = plan.decode,
      .prefill = elsewhere ? plan.prefill : std::nullopt,
      .cached_tokens = progress_.cached_tokens,
      .computed_tokens = progress_.prompt_tokens - progress_.cached_tokens,
      .queue_us = progress_.started_us - progress_.queued_us,
      .prefill_us = prefilled_us_ - progress_.started_us,
      .kv_bytes = kv_bytes_,
      .kv_transfer_us = kv_transfer_us_,
      .first_token_us = first_token_us_ - routed_us_ - pull_us_,
      .completion_tokens = tokens,
      .inter_token_us = tokens > 1 ? (last_token_us_ - first_token_us_) / (tokens - 1) : 0,
      .decode_batch = session_.route().decode_batch});
}

void SimulatedFleet::Call::End(const absl::Status& status) {
  if (status.ok() && session_.attempt() == 1) Learn();
  AnswerEnd end;
  if (status.ok()) {
    end.outcome = RequestOutcome::kWhole;
    end.prompt_tokens = static_cast<int32_t>(prompt_.size());
    end.cached_tokens = progress_.cached_tokens;
    end.output_tokens = static_cast<int32_t>(answer_.size());
    const int64_t exposed_us = first_token_us_ + fleet_->start_us_ - prefilled_us_;
    end.ledger = {{"pull_us", pull_us_},
                  {"queue_us", progress_.started_us - progress_.queued_us},
                  {"prefill_us", prefilled_us_ - progress_.started_us},
                  {"kv_exposed_us", exposed_us}};
    fleet_->figures_.cached_tokens += progress_.cached_tokens;
    fleet_->figures_.computed_tokens += progress_.prompt_tokens - progress_.cached_tokens;
  } else {
    const bool refused = absl::IsResourceExhausted(status);
    end.outcome = refused ? RequestOutcome::kRefused : RequestOutcome::kFailed;
    end.error = absl::StatusCodeToString(status.code());
    end.error_message = std::string(status.message());
  }
  timer_.OnEnd(fleet_->NowUs(), std::move(end));
  fleet_->Ended(*this);
}

void SimulatedFleet::Call::GiveUp() {
  session_.OnClientGone(absl::DeadlineExceededError(
      "no worker can go on with the request: all wait for room or for each other"));
}

}  // namespace baton
