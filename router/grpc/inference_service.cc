#include "router/grpc/inference_service.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/choices.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "router/client_prompt.h"
#include "router/grpc/client_access.h"
#include "router/grpc/grpc_client_stream.h"
#include "router/grpc/router_wire.h"
#include "rpc/client_request_wire.h"
#include "rpc/raw_message.h"
#include "rpc/sampling_wire.h"
#include "rpc/status_conversion.h"
#include "text/utf8.h"

namespace baton {
namespace {

constexpr size_t kStarted = 1;
constexpr size_t kFinished = 1;
constexpr size_t kMostTenants = 1000;  // in a status

grpc::ServerUnaryReactor* Reply(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

// Ends a stream before it begins.
class RefusedStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit RefusedStream(const absl::Status& status) { Finish(ToGrpcStatus(status)); }

 private:
  void OnDone() override { delete this; }
};

}  // namespace

InferenceService::InferenceService(const GenerateHost& host, ConcurrencyLimit* limit,
                                   StreamWatchdog* streams, const LatestHeartbeats* heartbeats,
                                   const RefusedWorkers* refused)
    : host_(host), limit_(limit), streams_(streams), heartbeats_(heartbeats), refused_(refused) {}

template <typename Request>
absl::StatusOr<Caller> InferenceService::TakeClient(const grpc::CallbackServerContext& context,
                                                    const char* method, Request& request) const {
  const std::string key = request.api_key();
  request.clear_api_key();
  return ClientOfCall(CallerOfCall(context),
                      StrCat("/", v1::Inference::service_full_name(), "/", method), host_.api_keys,
                      key);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::Generate(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes) {
  v1::GenerateRequest request;
  absl::Status parsed = ParseRaw(*bytes, request);
  const auto refuse = [&](const absl::Status& status, Refusal reason) {
    host_.Refused(Endpoint::kGenerate, request.request_id(), status, reason);
    return new RefusedStream(status);
  };
  const absl::StatusOr<Caller> client = TakeClient(*context, "Generate", request);
  if (!client.ok()) return refuse(client.status(), Refusal::kUnauthorized);
  const absl::Status tenant = TakeTenant(*client, *request.mutable_tenant());
  if (!tenant.ok()) return refuse(tenant, Refusal::kUnauthorized);
  // The client reset the stream before its request came. A storm of resets must not take the places
  // of others, because gRPC ends such calls late.
  if (!bytes->Valid()) return refuse(parsed, Refusal::kInvalid);
  absl::StatusOr<ConcurrencyLimit::Slot> slot = limit_->Enter();
  if (!slot.ok()) {
    const bool ending = absl::IsUnavailable(slot.status());
    return refuse(slot.status(), ending ? Refusal::kShutdown : Refusal::kLimit);
  }
  int32_t priority = request.priority();
  std::unique_ptr<TenantVisit> visit;
  if (host_.tenants != nullptr) {
    auto entered = host_.tenants->Enter(request.tenant(), priority);
    if (!entered.ok()) return refuse(entered.status(), Refusal::kLimit);
    visit = *std::move(entered);
    priority = visit->priority();
  }
  const CallDeadline deadline(MicrosecondsLeft(*context), host_.clock);
  const absl::Status timely =
      host_.core->MayWait(deadline.LeftUs(), priority, MostAhead(visit.get()));
  if (!timely.ok()) return refuse(timely, Refusal::kOverload);
  const auto model = host_.core->model();
  const size_t tokens =
      model.ok() ? static_cast<size_t>((*model)->description().context_length) : 0;
  const auto choices =
      static_cast<size_t>(std::clamp(request.has_n() ? request.n() : 1, 1, kMaxChoices));
  const size_t messages = kStarted + choices * (tokens + kFinished);
  const auto stream = std::make_shared<GrpcClientStream>(messages, context);
  const auto call = std::make_shared<GenerateCall>(host_, *std::move(slot), stream, deadline,
                                                   priority, Endpoint::kGenerate, std::move(visit));
  stream->Connect(call);
  stream->Hold();
  streams_->Add(stream);
  if (parsed.ok()) {
    call->Start(request);
  } else {
    call->CallOff(std::move(parsed));
  }
  return stream.get();
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* bytes,
                                                     grpc::ByteBuffer* response) {
  const auto request = std::make_shared<v1::TokenizeRequest>();
  if (absl::Status parsed = ParseRaw(*bytes, *request); !parsed.ok()) return Reply(context, parsed);
  const absl::StatusOr<Caller> client = TakeClient(*context, "Tokenize", *request);
  if (!client.ok()) return Reply(context, client.status());
  return RunOnTextThread(context, bytes->Length(), [this, request, response]() -> absl::Status {
    v1::TokenizeResponse tokens;
    RETURN_IF_ERROR(DoTokenize(*request, tokens));
    *response = ToRaw(tokens);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context,
                                                       const v1::DetokenizeRequest* request,
                                                       v1::DetokenizeResponse* response) {
  v1::DetokenizeRequest key;
  key.set_api_key(request->api_key());
  const absl::StatusOr<Caller> client = TakeClient(*context, "Detokenize", key);
  if (!client.ok()) return Reply(context, client.status());
  return RunOnTextThread(context, request->ByteSizeLong(),
                         [this, request, response] { return DoDetokenize(*request, *response); });
}

grpc::ServerUnaryReactor* InferenceService::GetModel(grpc::CallbackServerContext* context,
                                                     const v1::GetModelRequest* request,
                                                     v1::GetModelResponse* response) {
  v1::GetModelRequest key = *request;
  const absl::StatusOr<Caller> client = TakeClient(*context, "GetModel", key);
  if (!client.ok()) return Reply(context, client.status());
  return Reply(context, DoGetModel(*response));
}

grpc::ServerUnaryReactor* InferenceService::GetStatus(grpc::CallbackServerContext* context,
                                                      const v1::GetStatusRequest* request,
                                                      v1::GetStatusResponse* response) {
  v1::GetStatusRequest key = *request;
  const absl::StatusOr<Caller> client = TakeClient(*context, "GetStatus", key);
  if (!client.ok()) return Reply(context, client.status());
  *response = CurrentStatus();
  return Reply(context, absl::OkStatus());
}

v1::GetStatusResponse InferenceService::CurrentStatus() const {
  v1::GetStatusResponse out;
  for (v1::WorkerStatus& status : heartbeats_->Of(host_.core->Workers())) {
    *out.add_workers() = std::move(status);
  }
  for (v1::WorkerStatus& status : heartbeats_->Leaving()) {
    *out.add_leaving_workers() = std::move(status);
  }
  const RouterCounters counters = host_.core->counters();
  out.set_active_requests(counters.active_requests);
  out.set_requests_total(counters.requests_total);
  out.set_requests_failed(counters.requests_failed);
  out.set_requests_rejected(counters.requests_rejected);
  out.set_requests_cancelled(counters.requests_cancelled);
  out.set_ready(host_.core->ready());
  *out.mutable_index() = IndexStatusToWire(host_.core->index().Status(),
                                           host_.core->predicted_units(), host_.core->Workers());
  for (const RefusedWorkers::Refusal& refusal : refused_->Late()) {
    v1::RefusedWorker& shown = *out.add_refused_workers();
    shown.set_worker_id(ReplaceInvalidUtf8(refusal.worker_id));
    shown.set_address(ReplaceInvalidUtf8(refusal.address));
    shown.set_reason(ReplaceInvalidUtf8(refusal.reason));
    shown.set_heard_ms(refusal.heard_ms);
  }
  out.set_routing_policy(host_.options->routing.policy);
  if (host_.tenants != nullptr) {
    for (const TenantUse& use : host_.tenants->Uses(kMostTenants)) {
      *out.add_tenants() = TenantToWire(use);
    }
  }
  if (role_plan_) {
    v1::RolePlan plan = role_plan_();
    if (!plan.mode().empty()) *out.mutable_role_plan() = std::move(plan);
  }
  return out;
}

grpc::ServerUnaryReactor* InferenceService::RunOnTextThread(grpc::CallbackServerContext* context,
                                                            size_t bytes,
                                                            std::function<absl::Status()> work) {
  absl::StatusOr<ConcurrencyLimit::Slot> slot = limit_->Enter();
  if (!slot.ok()) return Reply(context, slot.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto held = std::make_shared<ConcurrencyLimit::Slot>(*std::move(slot));
  const absl::Status posted =
      host_.text_tasks->Post(bytes, 0, [context, reactor, held, work = std::move(work)] {
        const bool gone = context->IsCancelled();
        reactor->Finish(
            ToGrpcStatus(gone ? absl::CancelledError("cancelled by the client") : work()));
      });
  if (!posted.ok()) reactor->Finish(ToGrpcStatus(posted));
  return reactor;
}

absl::Status InferenceService::DoTokenize(const v1::TokenizeRequest& request,
                                          v1::TokenizeResponse& response) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const ServedModel> model, host_.core->model());
  RequestLimits limits = LimitsFor(*model, host_.options->max_prompt_bytes);
  limits.longest_token_bytes = 0;  // the text need not fit the context
  std::vector<TokenId> ids;
  switch (request.input_case()) {
    case v1::TokenizeRequest::kText:
      RETURN_IF_ERROR(CheckPromptBytes(static_cast<int64_t>(request.text().size()), limits));
      ids = model->encoder().EncodeText(request.text());
      break;
    case v1::TokenizeRequest::kMessages: {
      ASSIGN_OR_RETURN(const std::vector<ChatMessage> messages,
                       MessagesFromWire(request.messages(), limits));
      ASSIGN_OR_RETURN(EncodedPrompt prompt,
                       EncodeMessages(*model, messages, AddsGenerationPrompt(request.messages())));
      ids = std::move(prompt.tokens);
      break;
    }
    case v1::TokenizeRequest::INPUT_NOT_SET:
      return absl::InvalidArgumentError("one of text and messages must be set");
  }
  response.mutable_ids()->Add(ids.begin(), ids.end());
  return absl::OkStatus();
}

absl::Status InferenceService::DoDetokenize(const v1::DetokenizeRequest& request,
                                            v1::DetokenizeResponse& response) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const ServedModel> model, host_.core->model());
  ASSIGN_OR_RETURN(std::string text, TextFromWire(model->tokenizer(), request));
  response.set_text(std::move(text));
  if (!request.with_pieces()) return absl::OkStatus();
  for (const TokenId id : request.ids()) {
    response.add_pieces(std::string(model->tokenizer().TokenBytes(id)));
  }
  return absl::OkStatus();
}

absl::Status InferenceService::DoGetModel(v1::GetModelResponse& response) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const ServedModel> model, host_.core->model());
  const ModelDescription& description = model->description();
  response.set_name(ReplaceInvalidUtf8(description.name));
  response.set_architecture(ReplaceInvalidUtf8(description.architecture));
  response.set_fingerprint(description.fingerprint);
  response.set_vocabulary(model->tokenizer().vocab_size());
  response.set_context_length(description.context_length);
  response.set_layers(description.layers);
  response.set_has_chat_template(model->encoder().chat_status().ok());
  *response.mutable_recommended_sampling() = SamplingDefaultsToWire(description.sampling);
  return absl::OkStatus();
}

}  // namespace baton
