#include "router/grpc/generate_call.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/entropy.h"
#include "common/request_bounds.h"
#include "common/status_macros.h"
#include "router/client_prompt.h"
#include "router/grpc/router_wire.h"
#include "routing/affinity_policies.h"
#include "rpc/channel.h"
#include "rpc/chunked_prompt_wire.h"
#include "rpc/client_request_wire.h"
#include "rpc/sampling_wire.h"

namespace baton {
namespace {

v1::GeneratedPart PartToWire(const AnswerChoices::Choice& choice) {
  v1::GeneratedPart part;
  part.mutable_token_ids()->Add(choice.tokens.begin(), choice.tokens.end());
  part.set_logits_hash(choice.logits_hash);
  part.set_finished(choice.finished);
  return part;
}

// A question without other parts is computed like an ordinary prompt.
bool HasParts(const std::optional<ChunkedPrompt>& chunked) {
  return chunked.has_value() && !(chunked->system.empty() && chunked->chunks.empty());
}

}  // namespace

GenerateCall::GenerateCall(const GenerateHost& host, ConcurrencyLimit::Slot slot,
                           std::shared_ptr<ClientStream> client, const CallDeadline& deadline,
                           int32_t priority, Endpoint endpoint, std::unique_ptr<TenantVisit> visit)
    : slot_(std::move(slot)),
      host_(host),
      client_(std::move(client)),
      deadline_(deadline),
      priority_(priority),
      visit_(std::move(visit)),
      session_(host.core, host.failure_detector, this, priority),
      ledger_(host.clock->NowUs()),
      meter_(host.metrics, endpoint, ledger_.received_us()) {}

GenerateCall::~GenerateCall() = default;

void GenerateCall::SetRequestId(std::string_view id) {
  std::lock_guard lock(state_mutex_);
  request_id_ = id.substr(0, kMaxRequestIdBytes);
}

void GenerateCall::Start(const v1::GenerateRequest& wire) {
  SetRequestId(wire.request_id());
  absl::StatusOr<ClientRequest> request = ClientRequestFromWire(wire, Limits());
  if (!request.ok()) return CallOff(request.status());
  const absl::StatusOr<Placement> placement = PlacementFromWire(wire.placement());
  if (!placement.ok()) return CallOff(placement.status());
  Start(*std::move(request), *placement);
}

void GenerateCall::Start(ClientRequest request, Placement placement) {
  {
    std::lock_guard lock(state_mutex_);
    request_id_ = request.request_id.empty() ? absl::StrFormat("req-%016x", EntropyBits())
                                             : request.request_id;
    return_prompt_ = request.return_prompt_token_ids;
    trace_ = RequestTrace::Begin(host_.tracer, request.trace_parent, ledger_.received_us());
  }
  absl::Status status = CheckRequest(request, Limits(), host_.options->chunk_separator);
  if (status.ok()) {
    const size_t bytes = InputBytes(request);
    const auto kept = std::make_shared<const ClientRequest>(std::move(request));
    status = host_.text_tasks->Post(bytes, priority_, [self = shared_from_this(), kept, placement] {
      self->PrepareAndRun(*kept, placement);
    });
  }
  if (!status.ok()) CallOff(std::move(status));
}

RequestLimits GenerateCall::Limits() const {
  const auto model = host_.core->model();
  const int64_t max_bytes = host_.options->max_prompt_bytes;
  return model.ok() ? LimitsFor(**model, max_bytes) : RequestLimits{.max_prompt_bytes = max_bytes};
}

void GenerateCall::CallOff(absl::Status status) {
  std::lock_guard lock(state_mutex_);
  if (absl::IsUnavailable(status)) meter_.ShutsDown();
  session_.OnClientGone(std::move(status));
}

void GenerateCall::PrepareAndRun(const ClientRequest& request, Placement placement) {
  {
    std::lock_guard lock(state_mutex_);
    if (session_.ended()) return;
  }
  absl::StatusOr<Prepared> prepared = Prepare(request, placement);
  std::lock_guard lock(state_mutex_);
  if (!prepared.ok()) return session_.OnClientGone(prepared.status());
  sampling_ = std::move(prepared->sampling);
  ledger_.Tokenized(prepared->tokenized_us);
  meter_.Tokenized(prepared->tokenized_us);
  if (trace_ != nullptr) {
    trace_->Describe(request, meter_.endpoint(), request_id_, prepared->model, sampling_.seed());
    trace_->Tokenized(prepared->tokenized_us);
  }
  waiting_request_ = std::move(prepared->request);
  if (MayStart()) session_.Start(std::move(waiting_request_), shared_from_this());
}

absl::StatusOr<GenerateCall::Prepared> GenerateCall::Prepare(const ClientRequest& request,
                                                             Placement placement) const {
  Prepared out;
  GenerateSession::Request& prepared = out.request;
  prepared.placement = placement;
  ASSIGN_OR_RETURN(const std::shared_ptr<const ServedModel> model, host_.core->model());
  prepared.model = model->description().fingerprint;
  const RequestLimits limits = LimitsFor(*model, host_.options->max_prompt_bytes);
  ASSIGN_OR_RETURN(EncodedPrompt prompt,
                   EncodePrompt(*model, limits, host_.options->chunk_separator, request));
  prepared.prompt = std::move(prompt.tokens);
  out.tokenized_us = host_.clock->NowUs();
  out.model = model->description().name;

  out.sampling = SamplingToWire(request.sampling);
  if (!out.sampling.has_seed()) out.sampling.set_seed(EntropyBits());
  const int32_t context_length = model->description().context_length;
  prepared.choices = AnswerChoices(request.n, static_cast<size_t>(context_length));
  prepared.open_ended = !out.sampling.has_max_tokens();
  prepared.new_tokens = out.sampling.has_max_tokens() ? out.sampling.max_tokens() : context_length;
  prepared.cache_namespace = MakeNamespace({.tenant = request.tenant,
                                            .cache_salt = request.cache_salt,
                                            .lora = "",
                                            .model_revision = prepared.model});
  if (HasParts(prompt.chunked)) {
    SetParts(*std::move(prompt.chunked), request.session_id, prepared);
    return out;
  }
  prepared.prompt_hashes =
      ChainedHashes(prepared.cache_namespace, UnitsFromTokens(prepared.prompt));
  prepared.affinity_key =
      AffinityKey(prepared.cache_namespace, request.session_id, prepared.prompt_hashes,
                  host_.options->routing.affinity_tokens);
  return out;
}

// Requests without session that have equal parts before the question go to the same worker.
void GenerateCall::SetParts(ChunkedPrompt prompt, std::string_view session,
                            GenerateSession::Request& prepared) const {
  prepared.chunked = std::make_shared<const ChunkedRequest>(
      std::move(prompt), prepared.cache_namespace, host_.core->PieceTokens());
  const CacheNamespace derived = prepared.chunked->derived_namespace();
  prepared.prompt_hashes =
      ChainedHashes(derived, UnitsFromTokens(prepared.chunked->prompt().question));
  prepared.affinity_key =
      AffinityKey(session.empty() ? derived : prepared.cache_namespace, session, {}, 0);
}

// ---- events -------------------------------------------------------------------------------------

void GenerateCall::OnClientGone() {
  std::lock_guard lock(state_mutex_);
  session_.OnClientGone(deadline_.Passed()
                            ? absl::DeadlineExceededError("the client's deadline has passed")
                            : absl::CancelledError("cancelled by the client"));
}

void GenerateCall::OnDecodeEvent(int32_t attempt, v1::DecodeEvent event) {
  std::lock_guard lock(state_mutex_);
  event_ = std::move(event);
  switch (event_.event_case()) {
    case v1::DecodeEvent::kTicket:
      return session_.OnTicket(attempt);
    case v1::DecodeEvent::kTokens: {
      const v1::Tokens& tokens = event_.tokens();
      return session_.OnTokens(
          attempt, tokens.choice(),
          {tokens.token_ids().data(), static_cast<size_t>(tokens.token_ids_size())},
          event_.logits_hash());
    }
    case v1::DecodeEvent::kFinished:
      return session_.OnChoiceFinished(attempt, event_.finished().choice());
    case v1::DecodeEvent::EVENT_NOT_SET:
      return;  // an event of a newer worker's protocol
  }
}

void GenerateCall::OnWorkerSilent(WorkerNumber worker) {
  std::lock_guard lock(state_mutex_);
  session_.OnWorkerSilent(worker);
}

void GenerateCall::OnDecodeEnd(int32_t attempt, WorkerNumber worker, absl::Status status) {
  std::lock_guard lock(state_mutex_);
  // Cancelled means that the worker is shutting down, or that the router gave up a silent worker.
  // After a complete answer, the router itself cancels the call.
  const bool lost =
      (absl::IsUnavailable(status) || absl::IsCancelled(status)) && session_.Decodes(attempt);
  const std::string worker_id = session_.route().decode_id;
  if (absl::IsUnavailable(status) && session_.IsCurrent(attempt)) status = FromWorker(status);
  const absl::Status why = lost ? status : absl::OkStatus();
  session_.OnDecodeEnd(attempt, worker, std::move(status));
  if (!lost) return;
  const std::string next = session_.IsCurrent(attempt + 1) ? session_.route().decode_id : "";
  host_.log->Lost(request_id_, worker_id, why, next);
  meter_.WorkerLost(PrefillPlace::kDecodeWorker);
}

absl::Status GenerateCall::FromWorker(const absl::Status& status) const {
  const Route& route = session_.route();
  const std::vector<WorkerRecord> workers = host_.core->Workers();
  const bool left = std::none_of(workers.begin(), workers.end(), [&](const WorkerRecord& worker) {
    return worker.report.epoch == route.decode_epoch;
  });
  return absl::UnavailableError(absl::StrCat("decode worker ", route.decode_id, " at ",
                                             route.decode_address,
                                             left ? ", which has left the fleet (it cancels the "
                                                    "requests that still run after its --drain-ms)"
                                                  : "",
                                             ": ", status.message()));
}

void GenerateCall::OnPrefillEnd(int32_t attempt, WorkerNumber worker, absl::Status status,
                                const v1::PrefillResponse& response) {
  std::lock_guard lock(state_mutex_);
  if (status.ok() && session_.IsCurrent(attempt)) ledger_.PrefillReported(response);
  if (absl::IsUnavailable(status) && session_.IsCurrent(attempt)) {
    const Route& route = session_.route();
    host_.log->Lost(request_id_, route.prefill_id, status, route.decode_id);
    meter_.WorkerLost(PrefillPlace::kPrefillWorker);
  }
  session_.OnPrefillEnd(attempt, worker, std::move(status));
}

void GenerateCall::OnPrefillLocallyEnd(int32_t attempt, WorkerNumber worker, absl::Status status) {
  std::lock_guard lock(state_mutex_);
  session_.OnPrefillLocallyEnd(attempt, worker, std::move(status));
}

void GenerateCall::OnReportOverdue() {
  std::lock_guard lock(state_mutex_);
  session_.OnReportOverdue();
}

// ---- calls --------------------------------------------------------------------------------------

void GenerateCall::OnRouted(Route& route) {
  const int64_t now_us = host_.clock->NowUs();
  ledger_.Routed(now_us);
  meter_.Routed(route.plan, now_us);
  if (trace_ != nullptr) trace_->Routed(route, now_us);
  ledger_.Pulled(0, 0, "");
}

void GenerateCall::SendStarted() {
  v1::GenerateResponse response;
  v1::Started* started = response.mutable_started();
  started->set_request_id(request_id_);
  const std::vector<TokenId>& prompt = session_.request().prompt;
  started->set_prompt_tokens(static_cast<int32_t>(prompt.size()));
  started->set_seed(sampling_.seed());
  if (return_prompt_) started->mutable_prompt_token_ids()->Add(prompt.begin(), prompt.end());
  client_->Send(response);
}

template <typename WorkerRequest>
void GenerateCall::Describe(WorkerRequest& request) const {
  const GenerateSession::Request& asked = session_.request();
  request.set_request_id(request_id_);
  if (asked.chunked != nullptr) {
    *request.mutable_chunked() = ChunkedPromptToWire(asked.chunked->prompt());
  } else {
    request.mutable_prompt_token_ids()->Add(asked.prompt.begin(), asked.prompt.end());
  }
  *request.mutable_sampling() = sampling_;
  if (const std::optional<int32_t> most = session_.MostNewTokens()) {
    v1::SamplingParams& sampling = *request.mutable_sampling();
    sampling.set_max_tokens(*most);
    // The client set no max_tokens that its min_tokens could exceed.
    if (sampling.min_tokens() > sampling.max_tokens()) {
      sampling.set_min_tokens(sampling.max_tokens());
    }
  }
  request.set_cache_namespace(asked.cache_namespace.low());
  request.set_cache_namespace_high(asked.cache_namespace.high());
  request.set_priority(priority_);
  SetCacheOwner(request);
  request.set_n(asked.choices.n());
  if (trace_ != nullptr) request.set_trace_parent(trace_->ForWorkers());
}

void GenerateCall::OpenDecode(const FlowAction& action) {
  ledger_.AttemptStarted();
  v1::DecodeRequest request;
  Describe(request);
  request.set_remote_prefill(action.remote_prefill);
  request.set_queues_for_kv(action.queues_for_kv);
  for (const AnswerChoices::Choice& choice : session_.DecodeGoesOnBehind()) {
    *request.add_generated() = PartToWire(choice);
  }
  const Route& route = session_.route();
  decode_ = std::make_shared<DecodeStream>(
      v1::DecodeWorker::NewStub(host_.channels->Get(route.decode_address, route.decode_epoch)),
      std::move(request), action.attempt, action.worker, shared_from_this());
  decode_->Start(deadline_.ForCall());
}

void GenerateCall::SendPrefill(const FlowAction& action) {
  ticket_ = event_.ticket();
  const int64_t now_us = host_.clock->NowUs();
  // The time in the decode worker's queue is queueing, not routing.
  if (!action.queues_for_kv) ledger_.Routed(now_us);
  if (trace_ != nullptr) trace_->Reserved(now_us);
  v1::PrefillRequest request;
  Describe(request);
  *request.mutable_ticket() = ticket_;
  for (const AnswerChoices::Choice& choice : session_.PrefillGoesOnBehind()) {
    *request.mutable_generated() = PartToWire(choice);
  }
  const auto begin = [](v1::PrefillWorker::Stub& stub, grpc::ClientContext* context,
                        const v1::PrefillRequest* wire, v1::PrefillResponse* response,
                        std::function<void(grpc::Status)> done) {
    stub.async()->Prefill(context, wire, response, std::move(done));
  };
  const Route& route = session_.route();
  prefill_ = PrefillCall::Start(
      v1::PrefillWorker::NewStub(host_.channels->Get(route.prefill_address, route.prefill_epoch)),
      std::move(request), deadline_.ForCall(), begin,
      [self = shared_from_this(), attempt = action.attempt, worker = action.worker](
          absl::Status status, const v1::PrefillResponse& response) {
        self->OnPrefillEnd(attempt, worker, std::move(status), response);
      });
}

void GenerateCall::PrefillLocally(const FlowAction& action) {
  using LocalCall = ClientUnaryCall<v1::DecodeWorker::Stub, v1::PrefillLocallyRequest,
                                    v1::PrefillLocallyResponse>;
  v1::PrefillLocallyRequest request;
  request.set_transfer_id(ticket_.transfer_id());
  request.set_receiver_epoch(ticket_.receiver_epoch());
  const auto begin = [](v1::DecodeWorker::Stub& stub, grpc::ClientContext* context,
                        const v1::PrefillLocallyRequest* wire, v1::PrefillLocallyResponse* response,
                        std::function<void(grpc::Status)> done) {
    stub.async()->PrefillLocally(context, wire, response, std::move(done));
  };
  const Route& route = session_.route();
  LocalCall::Start(
      v1::DecodeWorker::NewStub(host_.channels->Get(route.decode_address, route.decode_epoch)),
      std::move(request), deadline_.ForCall(), begin,
      [self = shared_from_this(), attempt = action.attempt, worker = action.worker](
          absl::Status status, const v1::PrefillLocallyResponse&) {
        self->OnPrefillLocallyEnd(attempt, worker, std::move(status));
      });
}

void GenerateCall::AwaitReport() {
  report_alarm_ = std::make_unique<grpc::Alarm>();
  report_alarm_->Set(DeadlineIn(host_.options->report_wait_ms),
                     [self = shared_from_this()](bool) mutable {
                       // The alarm keeps this function alive, so the function must not keep the
                       // alarm alive.
                       const std::shared_ptr<GenerateCall> call = std::move(self);
                       call->OnReportOverdue();
                     });
}

bool GenerateCall::SendTokens() {
  if (visit_ != nullptr) visit_->FirstToken();
  v1::Tokens& tokens = *event_.mutable_tokens();
  const int64_t now_us = host_.clock->NowUs();
  ledger_.TokensArrived(now_us, tokens.token_ids_size(), tokens.choice());
  meter_.TokensArrived(now_us, tokens.token_ids_size(), tokens.choice());
  if (trace_ != nullptr) trace_->TokensArrived(now_us);
  v1::GenerateResponse response;
  *response.mutable_tokens() = std::move(tokens);
  return client_->Send(response);
}

void GenerateCall::KeepEnd() { ends_.push_back(std::move(*event_.mutable_finished())); }

void GenerateCall::SendEnds() {
  const Route& route = session_.route();
  for (v1::Finished& end : std::exchange(ends_, {})) {
    ledger_.Complete(host_.clock->NowUs(), session_.prefill_reported() ? route.prefill_id : "",
                     route.decode_id, end);
    end.mutable_ledger()->set_resumes(session_.lost_workers());
    last_end_ = end;
    if (trace_ != nullptr) {
      trace_->ChoiceFinished(end.reason() == v1::FINISH_REASON_STOP ? "stop" : "length");
    }
    v1::GenerateResponse response;
    *response.mutable_finished() = std::move(end);
    client_->Send(response);
  }
}

}  // namespace baton
