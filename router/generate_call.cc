#include "router/generate_call.h"

#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/entropy.h"
#include "common/status_macros.h"
#include "router/router_wire.h"
#include "routing/affinity_policies.h"
#include "rpc/channel.h"
#include "rpc/status_conversion.h"

namespace baton {
namespace {

using Kind = FlowAction::Kind;

v1::GeneratedPart PartToWire(const AnswerChoices::Choice& choice) {
  v1::GeneratedPart part;
  part.mutable_token_ids()->Add(choice.tokens.begin(), choice.tokens.end());
  part.set_logits_hash(choice.logits_hash);
  part.set_finished(choice.finished);
  return part;
}

}  // namespace

GenerateCall::GenerateCall(const GenerateHost& host, CallGate::Pass pass, size_t max_queued,
                           std::chrono::system_clock::time_point deadline, int32_t priority)
    : StreamWriter(max_queued),
      pass_(std::move(pass)),
      host_(host),
      deadline_(deadline),
      priority_(priority),
      flow_(host.options->decode_attempts, host.options->max_resumes),
      ledger_(host.clock->NowUs()) {
  host_.core->RequestStarted();
  waiting_ = host_.core->Waits(priority_);
}

GenerateCall::~GenerateCall() = default;

std::shared_ptr<GenerateCall> GenerateCall::Self() {
  return std::static_pointer_cast<GenerateCall>(shared_from_this());
}

void GenerateCall::Start(const v1::GenerateRequest& request) {
  const auto model = host_.core->model();
  const int32_t context_length = model.ok() ? (*model)->description().context_length : 0;
  absl::Status status = CheckRequest(request, host_.options->max_prompt_bytes, context_length);
  if (status.ok()) {
    const auto copy = std::make_shared<const v1::GenerateRequest>(request);
    status = host_.text_tasks->Post([self = Self(), copy] { self->PrepareAndRun(*copy); });
  }
  if (status.ok()) return;
  std::lock_guard lock(state_mutex_);
  Run(flow_.OnClientGone(std::move(status)));
}

void GenerateCall::PrepareAndRun(const v1::GenerateRequest& request) {
  {
    std::lock_guard lock(state_mutex_);
    if (flow_.ended()) return;
  }
  absl::Status status = Prepare(request);
  std::lock_guard lock(state_mutex_);
  Run(status.ok() ? flow_.Start(placement_) : flow_.OnClientGone(std::move(status)));
}

absl::Status GenerateCall::Prepare(const v1::GenerateRequest& request) {
  ASSIGN_OR_RETURN(placement_, PlacementFromWire(request.placement()));
  ASSIGN_OR_RETURN(const std::shared_ptr<const ServedModel> model, host_.core->model());
  model_ = model->description().fingerprint;
  const RequestLimits limits = LimitsFor(*model, host_.options->max_prompt_bytes);
  ASSIGN_OR_RETURN(prompt_, PromptFromWire(*model, limits, request));
  ledger_.Tokenized(host_.clock->NowUs());

  request_id_ = request.request_id().empty() ? absl::StrFormat("req-%016x", EntropyBits())
                                             : request.request_id();
  sampling_ = request.sampling();
  if (!sampling_.has_seed()) sampling_.set_seed(EntropyBits());
  choices_ = AnswerChoices(ChoicesFromWire(request),
                           static_cast<size_t>(model->description().context_length));
  return_prompt_ = request.include_prompt_token_ids();
  cache_namespace_ = MakeNamespace({.tenant = request.tenant(),
                                    .cache_salt = request.cache_salt(),
                                    .lora = "",
                                    .model_revision = model_});
  prompt_hashes_ = ChainedHashes(cache_namespace_, UnitsFromTokens(prompt_));
  affinity_key_ = AffinityKey(cache_namespace_, request.session_id(), prompt_hashes_,
                              host_.options->routing.affinity_tokens);
  return absl::OkStatus();
}

// ---- events -------------------------------------------------------------------------------------

void GenerateCall::OnCalledOff() {
  std::lock_guard lock(state_mutex_);
  const bool overdue = std::chrono::system_clock::now() >= deadline_;
  Run(flow_.OnClientGone(overdue ? absl::DeadlineExceededError("the client's deadline has passed")
                                 : absl::CancelledError("cancelled by the client")));
}

void GenerateCall::OnDecodeEvent(int32_t attempt, v1::DecodeEvent event) {
  std::lock_guard lock(state_mutex_);
  event_ = std::move(event);
  switch (event_.event_case()) {
    case v1::DecodeEvent::kTicket:
      if (RequestFlow::Actions actions = flow_.OnTicket(attempt); !actions.empty()) {
        ticket_ = event_.ticket();
        ledger_.Routed(host_.clock->NowUs());
        Run(std::move(actions));
      }
      return;
    case v1::DecodeEvent::kTokens:
      return Run(flow_.OnTokens(attempt));
    case v1::DecodeEvent::kFinished:
      return Run(flow_.OnChoiceFinished(attempt));
    case v1::DecodeEvent::EVENT_NOT_SET:
      return;  // from a newer worker
  }
}

void GenerateCall::OnWorkerSilent(WorkerNumber worker) {
  std::lock_guard lock(state_mutex_);
  const bool pulls = pull_ != nullptr && route_.plan.pull.has_value();
  if (pulls && (worker == route_.plan.prefiller() || worker == route_.plan.pull->from)) {
    pull_->Cancel();  // the answer goes on without
  }
  if (decode_ != nullptr && worker == route_.plan.decode && flow_.MayLoseDecode())
    decode_->Cancel();
  if (prefill_ != nullptr && worker == prefill_worker_) prefill_->Cancel();
}

void GenerateCall::OnDecodeEnd(int32_t attempt, WorkerNumber worker, absl::Status status) {
  std::lock_guard lock(state_mutex_);
  host_.core->WorkerDone(worker);
  host_.watch->Detach(worker, this);
  if (attempt == flow_.attempt()) {  // else the next one, with a route of its own, is under way
    PrefillEnded();
    if (prefill_expected_) host_.core->WorkerDone(*route_.plan.prefill);
    prefill_expected_ = false;
  }
  if (absl::IsUnavailable(status)) host_.core->MarkUnreachable(worker);
  Run(flow_.OnDecodeFailed(attempt, std::move(status)));
}

void GenerateCall::OnPrefillEnd(int32_t attempt, WorkerNumber worker, absl::Status status,
                                const v1::PrefillResponse& response) {
  std::lock_guard lock(state_mutex_);
  host_.core->WorkerDone(worker);
  host_.watch->Detach(worker, this);
  if (attempt == flow_.attempt()) PrefillEnded();
  if (!status.ok()) {
    if (absl::IsUnavailable(status)) host_.core->MarkUnreachable(worker);
    Run(flow_.OnPrefillFailed(attempt, std::move(status)));
    return SendEnds();
  }
  if (attempt == flow_.attempt()) {
    prefill_reported_ = true;
    ledger_.PrefillReported(response);
  }
  Run(flow_.OnPrefillDone(attempt));
  SendEnds();
}

void GenerateCall::OnPrefillLocallyEnd(int32_t attempt, WorkerNumber worker, absl::Status status) {
  std::lock_guard lock(state_mutex_);
  if (absl::IsUnavailable(status)) host_.core->MarkUnreachable(worker);
  Run(flow_.OnPrefillLocallyDone(attempt, std::move(status)));
}

void GenerateCall::OnReportOverdue() {
  std::lock_guard lock(state_mutex_);
  Run(flow_.OnReportOverdue());
}

// ---- actions ------------------------------------------------------------------------------------

void GenerateCall::Run(RequestFlow::Actions actions) {
  for (size_t i = 0; i < actions.size(); ++i) {
    const FlowAction action = actions[i];
    switch (action.kind) {
      case Kind::kChooseRoute:
        actions = ChooseRoute();  // always the last of its list
        i = static_cast<size_t>(-1);
        break;
      case Kind::kSendStarted:
        SendStarted();
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
        AwaitReport();
        break;
      case Kind::kFinish:
        Finish();
        break;
      case Kind::kFail:
        Fail(action.status);
        break;
    }
  }
}

RequestFlow::Actions GenerateCall::ChooseRoute() {
  PrefillEnded();  // of the attempt before, as are these
  SendEnds();
  // Several choices part at the prompt's end.
  const bool goes_on = flow_.resumes() && choices_.n() == 1;
  const std::vector<Hash128> hashes =
      goes_on ? CommittedHashes(choices_.all().front()) : prompt_hashes_;
  absl::StatusOr<Route> route = host_.core->ChooseRoute(
      {.prompt_hashes = hashes,
       .prompt_tokens = static_cast<int32_t>(choices_.TokensToGoOn(prompt_)),
       .placement = flow_.placement(),
       .excluded = flow_.excluded(),
       .fingerprint = flow_.resumes() ? route_.decode_fingerprint : "",
       .model = model_,
       .affinity_key = affinity_key_});
  if (!route.ok()) return flow_.OnNoRoute(route.status());
  route_ = *std::move(route);
  prefill_expected_ = route_.plan.prefill.has_value();
  prefill_pending_ = true;
  ledger_.Routed(host_.clock->NowUs());
  ledger_.Pulled(0, 0, "");
  return flow_.OnRoute(route_.plan);
}

void GenerateCall::SendStarted() {
  v1::GenerateResponse response;
  v1::Started* started = response.mutable_started();
  started->set_request_id(request_id_);
  started->set_prompt_tokens(static_cast<int32_t>(prompt_.size()));
  started->set_seed(sampling_.seed());
  if (return_prompt_) started->mutable_prompt_token_ids()->Add(prompt_.begin(), prompt_.end());
  Send(std::move(response));
}

template <typename WorkerRequest>
void GenerateCall::Describe(WorkerRequest& request) const {
  request.set_request_id(request_id_);
  request.mutable_prompt_token_ids()->Add(prompt_.begin(), prompt_.end());
  *request.mutable_sampling() = sampling_;
  request.set_cache_namespace(cache_namespace_.low());
  request.set_cache_namespace_high(cache_namespace_.high());
  request.set_priority(priority_);
  request.set_n(choices_.n());
}

void GenerateCall::OpenDecode(const FlowAction& action) {
  prefill_reported_ = false;
  ledger_.AttemptStarted();
  v1::DecodeRequest request;
  Describe(request);
  request.set_remote_prefill(action.remote_prefill);
  if (flow_.resumes()) {
    for (const AnswerChoices::Choice& choice : choices_.all()) {
      *request.add_generated() = PartToWire(choice);
    }
  }
  decode_ = std::make_shared<DecodeStream>(
      v1::DecodeWorker::NewStub(host_.channels->Get(route_.decode_address, route_.decode_epoch)),
      std::move(request), action.attempt, action.worker, Self());
  host_.watch->Attach({action.worker, route_.decode_epoch, route_.decode_address}, Self());
  decode_->Start(deadline_);
}

void GenerateCall::SendPrefill(const FlowAction& action) {
  prefill_expected_ = false;  // OnPrefillEnd counts it off
  prefill_worker_ = action.worker;
  host_.watch->Attach({action.worker, route_.prefill_epoch, route_.prefill_address}, Self());
  v1::PrefillRequest request;
  Describe(request);
  *request.mutable_ticket() = ticket_;
  if (flow_.resumes() && choices_.n() == 1) {
    *request.mutable_generated() = PartToWire(choices_.all().front());
  }
  const auto begin = [](v1::PrefillWorker::Stub& stub, grpc::ClientContext* context,
                        const v1::PrefillRequest* wire, v1::PrefillResponse* response,
                        std::function<void(grpc::Status)> done) {
    stub.async()->Prefill(context, wire, response, std::move(done));
  };
  prefill_ = PrefillCall::Start(
      v1::PrefillWorker::NewStub(host_.channels->Get(route_.prefill_address, route_.prefill_epoch)),
      std::move(request), deadline_, begin,
      [self = Self(), attempt = action.attempt, worker = action.worker](
          absl::Status status, const v1::PrefillResponse& response) {
        self->OnPrefillEnd(attempt, worker, std::move(status), response);
      });
}

void GenerateCall::PrefillLocally(const FlowAction& action) {
  using LocalCall = ClientUnaryCall<v1::DecodeWorker::Stub, v1::PrefillLocallyRequest,
                                    v1::PrefillLocallyResponse>;
  route_.plan.prefill.reset();
  host_.core->PrefillMoved(route_.plan);
  prefill_pending_ = true;
  v1::PrefillLocallyRequest request;
  request.set_transfer_id(ticket_.transfer_id());
  request.set_receiver_epoch(ticket_.receiver_epoch());
  const auto begin = [](v1::DecodeWorker::Stub& stub, grpc::ClientContext* context,
                        const v1::PrefillLocallyRequest* wire, v1::PrefillLocallyResponse* response,
                        std::function<void(grpc::Status)> done) {
    stub.async()->PrefillLocally(context, wire, response, std::move(done));
  };
  LocalCall::Start(
      v1::DecodeWorker::NewStub(host_.channels->Get(route_.decode_address, route_.decode_epoch)),
      std::move(request), deadline_, begin,
      [self = Self(), attempt = action.attempt, worker = action.worker](
          absl::Status status, const v1::PrefillLocallyResponse&) {
        self->OnPrefillLocallyEnd(attempt, worker, std::move(status));
      });
}

void GenerateCall::AwaitReport() {
  report_alarm_ = std::make_unique<grpc::Alarm>();
  report_alarm_->Set(DeadlineIn(host_.options->report_wait_ms), [self = Self()](bool) mutable {
    // The alarm keeps this function: what it captured must not keep the alarm.
    const std::shared_ptr<GenerateCall> call = std::move(self);
    call->OnReportOverdue();
  });
}

void GenerateCall::ForwardTokens() {
  PrefillEnded();
  WaitsNoMore(/*served=*/true);
  v1::Tokens& tokens = *event_.mutable_tokens();
  const std::span<const TokenId> ids(tokens.token_ids().data(),
                                     static_cast<size_t>(tokens.token_ids_size()));
  const absl::Status taken = choices_.TakeTokens(tokens.choice(), ids, event_.logits_hash());
  if (!taken.ok()) return Run(flow_.OnClientGone(taken));
  ledger_.TokensArrived(host_.clock->NowUs(), tokens.token_ids_size(), tokens.choice());
  v1::GenerateResponse response;
  *response.mutable_tokens() = std::move(tokens);
  if (!Send(std::move(response))) {
    Run(flow_.OnClientGone(absl::ResourceExhaustedError("the client does not read its answer")));
  }
}

void GenerateCall::ForwardFinished(int32_t attempt) {
  const absl::Status taken = choices_.TakeFinish(event_.finished().choice());
  if (!taken.ok()) return Run(flow_.OnClientGone(taken));
  ends_.push_back(std::move(*event_.mutable_finished()));
  if (choices_.all_finished()) return Run(flow_.OnDecodeFinished(attempt));
  SendEnds();
}

void GenerateCall::SendEnds() {
  if (flow_.report_pending()) return;
  for (v1::Finished& end : std::exchange(ends_, {})) {
    ledger_.Complete(host_.clock->NowUs(), prefill_reported_ ? route_.prefill_id : "",
                     route_.decode_id, end);
    end.mutable_ledger()->set_resumes(flow_.lost_workers());
    last_end_ = end;
    v1::GenerateResponse response;
    *response.mutable_finished() = std::move(end);
    Send(std::move(response));
  }
}

void GenerateCall::Finish() {
  RememberPrefixes();  // before the client knows: its next turn may come at once
  SendEnds();
  if (flow_.attempt() == 1) {  // else its times are those of several attempts
    const int32_t decode_batch = route_.decode_batch + choices_.n() - 1;
    host_.core->Learn(FinishedFromLedger(route_.plan, decode_batch, prefill_reported_, last_end_));
  }
  End(grpc::Status::OK);
  Ended(/*succeeded=*/true);
}

void GenerateCall::Fail(const absl::Status& status) {
  End(ToGrpcStatus(status));
  Ended(/*succeeded=*/absl::IsCancelled(status));  // a client that changed its mind is no failure
}

void GenerateCall::Ended(bool succeeded) {
  if (report_alarm_ != nullptr) report_alarm_->Cancel();
  WaitsNoMore(/*served=*/false);
  host_.core->RequestEnded(succeeded);
}

void GenerateCall::WaitsNoMore(bool served) {
  if (waiting_) host_.core->WaitsNoMore(*waiting_, served);
  waiting_.reset();
}

void GenerateCall::PrefillEnded() {
  if (prefill_pending_) host_.core->PrefillDone(route_.plan);
  prefill_pending_ = false;
}

void GenerateCall::RememberPrefixes() {
  if (prefill_reported_) host_.core->Remember(*route_.plan.prefill, prompt_hashes_);
  for (const AnswerChoices::Choice& choice : choices_.all()) {
    host_.core->Remember(route_.plan.decode, CommittedHashes(choice));
  }
}

std::vector<Hash128> GenerateCall::CommittedHashes(const AnswerChoices::Choice& choice) const {
  return ChainedHashes(cache_namespace_,
                       UnitsFromTokens(AnswerChoices::Committed(prompt_, choice)));
}

}  // namespace baton
