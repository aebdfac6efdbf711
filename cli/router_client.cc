#include "cli/router_client.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <utility>
#include <variant>

#include "common/status_macros.h"
#include "common/str_cat.h"
#include "rpc/answer_wire.h"
#include "rpc/channel.h"
#include "rpc/client_request_wire.h"
#include "rpc/concurrency_limit.h"
#include "rpc/sampling_wire.h"
#include "rpc/status_conversion.h"

namespace baton {
namespace {

constexpr int64_t kModelTimeoutMs = 2000;
constexpr int64_t kPiecesTimeoutMs = 5000;

v1::GenerateRequest RequestToWire(const Job& job, const RouterClientOptions& options) {
  v1::GenerateRequest out = ClientRequestToWire(job);
  out.set_placement(options.placement);
  out.set_api_key(options.connection.api_key);
  out.set_include_prompt_token_ids(true);
  return out;
}

absl::StatusOr<JobResult*> ResultOf(int32_t choice, std::vector<JobResult>& results) {
  if (choice >= 0 && static_cast<size_t>(choice) < results.size()) return &results[choice];
  return absl::InternalError(
      StrCat("the router sent choice ", choice, ", but the number of choices is ", results.size()));
}

void TakeFinished(AnswerFinished& finished, JobResult& result) {
  result.finish_reason = std::move(finished.finish_reason);
  result.prompt_tokens = finished.prompt_tokens;
  result.cached_tokens = finished.cached_tokens;
  result.completion_tokens = finished.completion_tokens;
  result.logits_hash = finished.logits_hash;
  result.prefill_worker = std::move(finished.prefill_worker);
  result.pull_source = std::move(finished.pull_source);
  result.decode_worker = std::move(finished.decode_worker);
  result.ledger.assign(finished.ledger.begin(), finished.ledger.end());
}

// Adds one event to the results and returns its text. Internal if the event is for a choice that
// the request did not ask for.
absl::StatusOr<std::string> TakeEvent(const v1::GenerateResponse& response,
                                      std::vector<JobResult>& results) {
  std::optional<AnswerEvent> event = AnswerEventFromWire(response);
  if (!event) return "";
  if (const auto* const started = std::get_if<AnswerStarted>(&*event)) {
    for (JobResult& result : results) result.prompt_token_ids = started->prompt_token_ids;
    return "";
  }
  if (auto* const tokens = std::get_if<AnswerTokens>(&*event)) {
    ASSIGN_OR_RETURN(JobResult * result, ResultOf(tokens->choice, results));
    result->token_ids.insert(result->token_ids.end(), tokens->token_ids.begin(),
                             tokens->token_ids.end());
    std::move(tokens->logprobs.begin(), tokens->logprobs.end(),
              std::back_inserter(result->logprobs));
    result->text += tokens->text;
    return std::move(tokens->text);
  }
  auto& finished = std::get<AnswerFinished>(*event);
  ASSIGN_OR_RETURN(JobResult * result, ResultOf(finished.choice, results));
  TakeFinished(finished, *result);
  result->text += finished.text;
  return std::move(finished.text);
}

// Returns the error of a call to `router`. Without a connection, the message says what to do.
absl::Status FromRouter(const grpc::Status& status, grpc::Channel& channel,
                        const std::string& router) {
  absl::Status failure = FromGrpcStatus(status);
  if (absl::IsDeadlineExceeded(failure)) {
    return absl::DeadlineExceededError("the request's deadline has passed");
  }
  if (absl::IsCancelled(failure) && failure.message() == "CANCELLED") {  // gRPC's own
    return absl::CancelledError("the request was cancelled");
  }
  constexpr CalledProcess kRouter = {
      .kind = "router",
      .option = "--router",
      .missing_advice = "start one with `baton up`, or give --router",
      .address_advice = "give a router's address with --router"};
  return ExplainFailure(kRouter, router, channel, std::move(failure));
}

// For a call that returned no message: returns true if no router accepted the request. Otherwise a
// router refused it, or its deadline passed. Cancelled comes from an interrupt in this process or
// from a router that ends.
bool NoRouterTookIt(grpc::Channel& channel, const absl::Status& failure) {
  if (absl::IsCancelled(failure)) return true;
  if (!absl::IsUnavailable(failure)) return false;
  return failure.message() == kDrainingMessage ||
         channel.GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_READY;
}

std::vector<JobResult> EmptyResults(const Job& job) {
  std::vector<JobResult> results(static_cast<size_t>(job.n));
  for (int32_t i = 0; i < job.n; ++i) {
    if (job.n > 1) results[i].choice = i;
  }
  return results;
}

}  // namespace

RouterClient::RouterClient(const RouterClientOptions& options)
    : options_(options), connection_(NewConnection()) {}

RouterClient::Connection RouterClient::NewConnection() const {
  const std::shared_ptr<grpc::Channel> channel =
      MakeChannel(options_.router, options_.connection.to_routers);
  return {.channel = channel, .stub = v1::Inference::NewStub(channel)};
}

absl::StatusOr<std::vector<JobResult>> RouterClient::Run(
    const Job& job, const std::function<void(std::string_view)>& on_text) {
  RETURN_IF_ERROR(CheckUtf8(job));
  grpc::ClientContext context;
  if (options_.timeout_ms > 0) context.set_deadline(DeadlineIn(options_.timeout_ms));
  {
    std::lock_guard lock(mutex_);
    if (interrupted_) return NotBegun(absl::CancelledError("interrupted"));
    running_.insert(&context);
  }
  std::vector<JobResult> results = EmptyResults(job);
  const Connection connection = Usable();
  const auto reader = connection.stub->Generate(&context, RequestToWire(job, options_));
  v1::GenerateResponse response;
  absl::Status understood;
  bool begun = false;
  while (reader->Read(&response)) {
    begun = true;
    const absl::StatusOr<std::string> text = TakeEvent(response, results);
    if (!text.ok()) {
      understood = text.status();
      context.TryCancel();
    } else if (on_text && !text->empty() && job.n == 1) {
      on_text(*text);
    }
  }
  const grpc::Status status = reader->Finish();
  {
    std::lock_guard lock(mutex_);
    running_.erase(&context);
  }
  RETURN_IF_ERROR(understood);
  if (!status.ok()) {
    const absl::Status failure = FromRouter(status, *connection.channel, options_.router);
    return !begun && NoRouterTookIt(*connection.channel, failure) ? NotBegun(failure) : failure;
  }
  for (const JobResult& result : results) {
    if (result.finish_reason.empty()) {
      return absl::InternalError("the router ended the stream without finishing");
    }
  }
  return results;
}

RouterClient::Connection RouterClient::Newest() {
  std::lock_guard lock(mutex_);
  return connection_;
}

// A channel that failed to connect refuses calls. It reconnects only while a call polls it, so a
// client that waits between calls would never reach its router again.
RouterClient::Connection RouterClient::Usable() {
  std::lock_guard lock(mutex_);
  const auto state = connection_.channel->GetState(/*try_to_connect=*/false);
  if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) connection_ = NewConnection();
  return connection_;
}

bool RouterClient::Connect(int64_t timeout_ms) {
  constexpr int64_t kSliceMs = 100;  // how soon an interrupt is noticed
  const std::shared_ptr<grpc::Channel> channel = Newest().channel;
  const auto deadline = DeadlineIn(timeout_ms);
  while (true) {
    const grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return true;
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) return false;
    {
      std::lock_guard lock(mutex_);
      if (interrupted_) return false;
    }
    if (std::chrono::system_clock::now() >= deadline) return false;
    channel->WaitForStateChange(state, std::min(deadline, DeadlineIn(kSliceMs)));
  }
}

void RouterClient::Reconnect() {
  Connection connection = NewConnection();
  std::lock_guard lock(mutex_);
  connection_ = std::move(connection);
}

void RouterClient::Interrupt() {
  std::lock_guard lock(mutex_);
  interrupted_ = true;
  for (grpc::ClientContext* context : running_) context->TryCancel();
}

void RouterClient::Resume() {
  std::lock_guard lock(mutex_);
  interrupted_ = false;
}

absl::StatusOr<v1::GetStatusResponse> RouterClient::GetStatus(int64_t timeout_ms) {
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(timeout_ms));
  v1::GetStatusResponse response;
  const Connection connection = Newest();
  v1::GetStatusRequest request;
  request.set_api_key(options_.connection.api_key);
  const grpc::Status status = connection.stub->GetStatus(&context, request, &response);
  if (!status.ok()) return FromRouter(status, *connection.channel, options_.router);
  return response;
}

absl::StatusOr<SamplingDefaults> RouterClient::RecommendedSampling() {
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(kModelTimeoutMs));
  v1::GetModelResponse response;
  v1::GetModelRequest request;
  request.set_api_key(options_.connection.api_key);
  const grpc::Status status = Usable().stub->GetModel(&context, request, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return SamplingDefaultsFromWire(response.recommended_sampling());
}

absl::StatusOr<std::vector<std::string>> RouterClient::Pieces(const std::vector<TokenId>& tokens) {
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(kPiecesTimeoutMs));
  v1::DetokenizeRequest request;
  request.mutable_ids()->Add(tokens.begin(), tokens.end());
  request.set_with_pieces(true);
  request.set_api_key(options_.connection.api_key);
  v1::DetokenizeResponse response;
  const grpc::Status status = Usable().stub->Detokenize(&context, request, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return std::vector<std::string>(response.pieces().begin(), response.pieces().end());
}

}  // namespace baton
