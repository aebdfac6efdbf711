#include "router/generate_session.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace baton {

using Kind = FlowAction::Kind;

namespace {

// Decode workers asked in a row without a token. If three workers refuse or are unreachable, the
// fleet is full or gone. Asking more of them would only delay the refusal.
constexpr int32_t kDecodeAttempts = 3;
// How often another worker resumes an answer. Restarting a fleet worker by worker costs an answer
// several workers. A request that kills its workers must not kill all of them.
constexpr int32_t kMaxResumes = 8;

}  // namespace

GenerateSession::GenerateSession(RouterCore* core, FailureDetector* failure_detector,
                                 GenerateCalls* calls, int32_t priority)
    : core_(core),
      failure_detector_(failure_detector),
      calls_(calls),
      flow_(kDecodeAttempts, kMaxResumes) {
  core_->RequestStarted();
  waiting_ = core_->Waits(priority);
}

void GenerateSession::Start(Request request, std::shared_ptr<SilenceListener> listener) {
  if (flow_.ended()) return;
  request_ = std::move(request);
  listener_ = listener;
  // The parts of a chunked prompt are planned for the moment, so it cannot wait for room.
  Run(flow_.Start(request_.placement, /*hand_offs_queue=*/request_.chunked == nullptr));
}

// ---- events -------------------------------------------------------------------------------------

void GenerateSession::OnClientGone(absl::Status status) {
  Run(flow_.OnClientGone(std::move(status)));
}

void GenerateSession::OnPullEnd(int32_t attempt, bool receiver_gone, bool source_gone) {
  DetachPull();
  if (!IsCurrent(attempt)) return;
  if (receiver_gone) core_->MarkUnreachable(route_.plan.prefiller());
  if (source_gone) core_->MarkUnreachable(route_.plan.pull->from);
  Run(flow_.OnPullEnded(attempt));
}

void GenerateSession::OnTicket(int32_t attempt) { Run(flow_.OnTicket(attempt)); }

void GenerateSession::OnTokens(int32_t attempt, int32_t choice, std::span<const TokenId> tokens,
                               uint64_t logits_hash) {
  tokens_ = {choice, tokens, logits_hash};
  Run(flow_.OnTokens(attempt));
}

void GenerateSession::OnChoiceFinished(int32_t attempt, int32_t choice) {
  finished_choice_ = choice;
  Run(flow_.OnChoiceFinished(attempt));
}

void GenerateSession::OnDecodeEnd(int32_t attempt, WorkerNumber worker, absl::Status status) {
  core_->WorkerDone(worker);
  failure_detector_->Detach(worker, Listener().get());
  if (attempt == flow_.attempt()) {  // otherwise the next attempt, with its own route, has begun
    PrefillEnded();
    PrefillNotExpected();
  }
  if (absl::IsUnavailable(status)) core_->MarkUnreachable(worker);
  Run(flow_.OnDecodeFailed(attempt, std::move(status)));
}

void GenerateSession::OnPrefillEnd(int32_t attempt, WorkerNumber worker, absl::Status status) {
  core_->WorkerDone(worker);
  failure_detector_->Detach(worker, Listener().get());
  if (attempt == flow_.attempt()) PrefillEnded();
  if (status.ok()) {
    prefill_reported_ = prefill_reported_ || attempt == flow_.attempt();
    Run(flow_.OnPrefillDone(attempt));
  } else {
    if (absl::IsUnavailable(status)) core_->MarkUnreachable(worker);
    Run(flow_.OnPrefillFailed(attempt, std::move(status)));
  }
  SendEnds();
}

void GenerateSession::OnPrefillLocallyEnd(int32_t attempt, WorkerNumber worker,
                                          absl::Status status) {
  if (absl::IsUnavailable(status)) core_->MarkUnreachable(worker);
  Run(flow_.OnPrefillLocallyDone(attempt, std::move(status)));
}

void GenerateSession::OnReportOverdue() { Run(flow_.OnReportOverdue()); }

void GenerateSession::OnWorkerSilent(WorkerNumber worker) {
  if (pull_ && (worker == pull_->receiver || worker == pull_->source)) {
    calls_->CancelPull();  // the answer continues without the pull
  }
  if (worker == route_.plan.decode && flow_.MayLoseDecode()) calls_->CancelDecode();
  if (worker == prefill_worker_) calls_->CancelPrefill();
}

// ---- actions ------------------------------------------------------------------------------------

void GenerateSession::Run(RequestFlow::Actions actions) {
  for (size_t i = 0; i < actions.size(); ++i) {
    const FlowAction action = actions[i];
    calls_->OnAction(action);
    switch (action.kind) {
      case Kind::kChooseRoute:
        actions = ChooseRoute();  // always the last action of its list
        i = static_cast<size_t>(-1);
        break;
      case Kind::kSendStarted:
        calls_->SendStarted();
        break;
      case Kind::kPull:
        StartPull(action);
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
        calls_->CancelDecode();
        break;
      case Kind::kCancelPrefill:
        calls_->CancelPrefill();
        break;
      case Kind::kAwaitReport:
        calls_->AwaitReport();
        break;
      case Kind::kFinish:
        // Before the client has the end, because its next turn may come at once.
        RememberPrefixes();
        calls_->SendEnds();
        End(absl::OkStatus());
        break;
      case Kind::kFail:
        End(action.status);
        break;
    }
  }
}

RequestFlow::Actions GenerateSession::ChooseRoute() {
  PrefillEnded();  // of the attempt before, as is SendEnds()
  SendEnds();
  // Several choices share only the prompt.
  const AnswerChoices& choices = request_.choices;
  const bool goes_on = flow_.resumes() && choices.n() == 1;
  const std::vector<Hash128> hashes =
      goes_on ? CommittedHashes(choices.all().front()) : request_.prompt_hashes;
  absl::StatusOr<Route> route = core_->ChooseRoute(
      {.prompt_hashes = hashes,
       .prompt_tokens = static_cast<int32_t>(choices.TokensToGoOn(request_.prompt)),
       .sequence_tokens = static_cast<int64_t>(request_.prompt.size()) + request_.new_tokens,
       // Before the first token nothing is promised, so a smaller worker may do.
       .least_room = request_.open_ended && !flow_.resumes() ? 0 : route_.room,
       .open_ended = request_.open_ended,
       .placement = flow_.placement(),
       .excluded = flow_.excluded(),
       .fingerprint = flow_.resumes() ? route_.decode_fingerprint : "",
       .backend = flow_.resumes() ? route_.decode_backend : "",
       .model = request_.model,
       .affinity_key = request_.affinity_key,
       .chunked = request_.chunked.get(),
       .asked_before = flow_.asked_before(),
       .queues_for_kv = flow_.queues_for_kv()});
  if (!route.ok()) return flow_.OnNoRoute(route.status());
  route_ = *std::move(route);
  // While a request waits for room, it counts nowhere but on its decode worker.
  const bool waits = route_.plan.prefill.has_value() && flow_.queues_for_kv();
  prefill_expected_ = route_.plan.prefill.has_value() && !waits;
  prefill_pending_ = !waits;
  calls_->OnRouted(route_);
  return flow_.OnRoute(route_.plan);
}

void GenerateSession::StartPull(const FlowAction& action) {
  const WorkerNumber receiver = route_.plan.prefiller();
  pull_ = {.receiver = receiver, .source = route_.plan.pull->from};
  failure_detector_->Attach({receiver, route_.prefiller_epoch(), route_.prefiller_address()},
                            Listener());
  failure_detector_->Attach({pull_->source, route_.pull_source_epoch, route_.pull_source_address},
                            Listener());
  calls_->StartPull(action.attempt);
}

// The request ends before a worker was asked to decode or prefill.
void GenerateSession::CancelPull() {
  calls_->CancelPull();
  PrefillEnded();
  PrefillNotExpected();
  core_->WorkerDone(route_.plan.decode);
}

void GenerateSession::OpenDecode(const FlowAction& action) {
  prefill_reported_ = false;
  failure_detector_->Attach({action.worker, route_.decode_epoch, route_.decode_address},
                            Listener());
  calls_->OpenDecode(action);
}

void GenerateSession::SendPrefill(const FlowAction& action) {
  // OnPrefillEnd subtracts it.
  if (!std::exchange(prefill_expected_, false)) AddPrefill();
  prefill_worker_ = action.worker;
  failure_detector_->Attach({action.worker, route_.prefill_epoch, route_.prefill_address},
                            Listener());
  calls_->SendPrefill(action);
}

void GenerateSession::PrefillLocally(const FlowAction& action) {
  PrefillEnded();
  route_.plan.prefill.reset();
  AddPrefill();
  calls_->PrefillLocally(action);
}

void GenerateSession::ForwardTokens() {
  PrefillEnded();
  WaitsNoMore(/*served=*/true);
  absl::Status status =
      request_.choices.TakeTokens(tokens_.choice, tokens_.ids, tokens_.logits_hash);
  if (status.ok() && !calls_->SendTokens()) {
    status = absl::ResourceExhaustedError("the client does not read its answer");
  }
  if (!status.ok()) Run(flow_.OnClientGone(std::move(status)));
}

void GenerateSession::ForwardFinished(int32_t attempt) {
  absl::Status taken = request_.choices.TakeFinish(finished_choice_);
  if (!taken.ok()) return Run(flow_.OnClientGone(std::move(taken)));
  calls_->KeepEnd();
  if (request_.choices.all_finished()) return Run(flow_.OnDecodeFinished(attempt));
  SendEnds();
}

void GenerateSession::SendEnds() {
  if (!flow_.report_pending() && !flow_.ended()) calls_->SendEnds();
}

void GenerateSession::End(const absl::Status& status) {
  WaitsNoMore(/*served=*/false);
  calls_->End(status);
  core_->RequestEnded(status);
}

// ---- accounts -----------------------------------------------------------------------------------

void GenerateSession::RememberPrefixes() {
  if (prefill_reported_) core_->Remember(*route_.plan.prefill, request_.prompt_hashes);
  for (const AnswerChoices::Choice& choice : request_.choices.all()) {
    core_->Remember(route_.plan.decode, CommittedHashes(choice));
  }
}

std::vector<Hash128> GenerateSession::CommittedHashes(const AnswerChoices::Choice& choice) const {
  if (request_.chunked == nullptr) {
    return ChainedHashes(request_.cache_namespace,
                         UnitsFromTokens(AnswerChoices::Committed(request_.prompt, choice)));
  }
  const std::vector<TokenId>& question = request_.chunked->prompt().question;
  return ChainedHashes(request_.chunked->derived_namespace(),
                       UnitsFromTokens(AnswerChoices::Committed(question, choice)));
}

std::span<const AnswerChoices::Choice> GenerateSession::DecodeGoesOnBehind() const {
  if (!flow_.resumes()) return {};
  return request_.choices.all();
}

std::span<const AnswerChoices::Choice> GenerateSession::PrefillGoesOnBehind() const {
  if (request_.choices.n() > 1) return {};
  return DecodeGoesOnBehind();
}

std::vector<TokenId> GenerateSession::PulledTokens() const {
  std::vector<TokenId> tokens = request_.choices.CommonTokens(request_.prompt);
  const auto pulled = static_cast<size_t>(std::max(0, route_.plan.pull->tokens));
  tokens.resize(std::min(tokens.size(), pulled));
  return tokens;
}

std::optional<int32_t> GenerateSession::MostNewTokens() const {
  const int64_t room = route_.room - static_cast<int64_t>(request_.prompt.size());
  if (!request_.open_ended || room <= 0) return std::nullopt;
  return static_cast<int32_t>(std::min<int64_t>(room, std::numeric_limits<int32_t>::max()));
}

void GenerateSession::AddPrefill() {
  core_->PrefillAdded(route_.plan);
  prefill_pending_ = true;
}

void GenerateSession::PrefillEnded() {
  if (prefill_pending_) core_->PrefillDone(route_.plan);
  prefill_pending_ = false;
}

void GenerateSession::PrefillNotExpected() {
  if (prefill_expected_) core_->WorkerDone(*route_.plan.prefill);
  prefill_expected_ = false;
}

void GenerateSession::DetachPull() {
  if (!pull_) return;
  failure_detector_->Detach(pull_->receiver, Listener().get());
  failure_detector_->Detach(pull_->source, Listener().get());
  pull_.reset();
}

void GenerateSession::WaitsNoMore(bool served) {
  if (waiting_) core_->WaitsNoMore(*waiting_, served);
  waiting_.reset();
}

}  // namespace baton
