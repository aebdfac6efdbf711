#include "cli/router_client.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/status_macros.h"
#include "common/str_cat.h"
#include "rpc/channel.h"
#include "rpc/concurrency_limit.h"
#include "rpc/prompt_chunks_wire.h"
#include "rpc/sampling_wire.h"
#include "rpc/status_conversion.h"
#include "text/utf8.h"

namespace baton {
namespace {

constexpr int64_t kModelTimeoutMs = 2000;
constexpr int64_t kPiecesTimeoutMs = 5000;

// Checks that a text field is UTF-8, as the wire requires. The error names the field; the RPC
// layer's own error would not.
absl::Status CheckText(std::string_view field, std::string_view text) {
  if (ValidUtf8Prefix(text) == text.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(field, " is not valid UTF-8 at byte ", ValidUtf8Prefix(text), " of ", text.size()));
}

absl::Status CheckPart(std::string_view field, const PromptPart& part) {
  const auto* text = std::get_if<std::string>(&part);
  return text == nullptr ? absl::OkStatus() : CheckText(field, *text);
}

absl::Status CheckChunks(std::string_view field, const std::vector<PromptPart>& chunks) {
  for (size_t i = 0; i < chunks.size(); ++i) {
    RETURN_IF_ERROR(CheckPart(StrCat(field, "[", i, "]"), chunks[i]));
  }
  return absl::OkStatus();
}

absl::Status CheckTexts(const Job& job) {
  if (job.prompt) RETURN_IF_ERROR(CheckText("prompt", *job.prompt));
  if (job.chunk_separator) RETURN_IF_ERROR(CheckText("chunk_separator", *job.chunk_separator));
  if (job.parts) {
    RETURN_IF_ERROR(CheckPart("system", job.parts->system));
    RETURN_IF_ERROR(CheckChunks("chunks", job.parts->chunks));
    RETURN_IF_ERROR(CheckPart("question", job.parts->question));
  }
  if (job.messages) {
    for (size_t i = 0; i < job.messages->size(); ++i) {
      const ChatMessage& message = (*job.messages)[i];
      RETURN_IF_ERROR(CheckText(StrCat("messages[", i, "].role"), message.role));
      RETURN_IF_ERROR(CheckText(StrCat("messages[", i, "].content"), message.content));
      RETURN_IF_ERROR(CheckChunks(StrCat("messages[", i, "].chunks"), message.chunks));
    }
  }
  for (const std::string& stop : job.sampling.stop) RETURN_IF_ERROR(CheckText("stop", stop));
  return absl::OkStatus();
}

v1::GenerateRequest RequestToWire(const Job& job, v1::PrefillPlacement placement) {
  v1::GenerateRequest out;
  if (job.prompt) out.set_prompt(*job.prompt);
  if (job.prompt_token_ids) {
    out.mutable_prompt_token_ids()->mutable_ids()->Add(job.prompt_token_ids->begin(),
                                                       job.prompt_token_ids->end());
  }
  if (job.messages) {
    v1::Messages* messages = out.mutable_messages();
    for (const ChatMessage& message : *job.messages) {
      v1::ChatMessage* wire = messages->add_messages();
      wire->set_role(message.role);
      wire->set_content(message.content);
      for (const PromptPart& chunk : message.chunks) *wire->add_chunks() = PartToWire(chunk);
    }
  }
  if (job.parts) *out.mutable_parts() = PartsToWire(*job.parts);
  ChunkOptionsToWire(job.chunk_options, out);
  if (job.chunk_separator) out.set_chunk_separator(*job.chunk_separator);
  *out.mutable_sampling() = SamplingToWire(job.sampling);
  out.set_tenant(job.tenant);
  out.set_cache_salt(job.cache_salt);
  out.set_session_id(job.session_id);
  out.set_priority(job.priority);
  out.set_n(job.n);
  out.set_placement(placement);
  out.set_include_prompt_token_ids(true);
  return out;
}

void TakeFinished(const v1::Finished& finished, JobResult& result) {
  const v1::Ledger& wire = finished.ledger();
  result.finish_reason = finished.reason() == v1::FINISH_REASON_STOP ? "stop" : "length";
  result.prompt_tokens = finished.usage().prompt_tokens();
  result.cached_tokens = finished.usage().cached_tokens();
  result.completion_tokens = finished.usage().completion_tokens();
  result.logits_hash = finished.logits_hash();
  result.prefill_worker = wire.prefill_worker();
  result.pull_source = wire.pull_source();
  result.decode_worker = wire.decode_worker();
  result.ledger = {{"tokenize_us", wire.tokenize_us()},
                   {"route_us", wire.route_us()},
                   {"queue_us", wire.queue_us()},
                   {"prefill_us", wire.prefill_us()},
                   {"prefill_chunks", wire.prefill_chunks()},
                   {"kv_bytes", wire.kv_bytes()},
                   {"kv_transfer_us", wire.kv_transfer_us()},
                   {"kv_exposed_us", wire.kv_exposed_us()},
                   {"admit_us", wire.admit_us()},
                   {"first_token_us", wire.first_token_us()},
                   {"inter_token_us", wire.inter_token_us()},
                   {"total_us", wire.total_us()},
                   {"decode_cached_tokens", wire.decode_cached_tokens()},
                   {"prefill_cached_tokens", wire.prefill_cached_tokens()},
                   {"computed_tokens", wire.computed_tokens()},
                   {"preemptions", wire.preemptions()},
                   {"resumes", wire.resumes()},
                   {"pull_us", wire.pull_us()},
                   {"pulled_tokens", wire.pulled_tokens()},
                   {"chunks", wire.chunks()},
                   {"chunk_hits", wire.chunk_hits()},
                   {"chunk_repaired_tokens", wire.chunk_repaired_tokens()},
                   {"chunk_pulled_bytes", wire.chunk_pulled_bytes()},
                   {"chunk_lookup_us", wire.chunk_lookup_us()},
                   {"chunk_compute_us", wire.chunk_compute_us()},
                   {"chunk_place_us", wire.chunk_place_us()},
                   {"chunk_repair_us", wire.chunk_repair_us()},
                   {"chunk_wake_us", wire.chunk_wake_us()}};
}

void TakeTokens(const v1::Tokens& tokens, JobResult& result) {
  result.token_ids.insert(result.token_ids.end(), tokens.token_ids().begin(),
                          tokens.token_ids().end());
  for (const v1::TokenDetail& wire : tokens.logprobs()) {
    TokenDetail detail{.logprob = wire.logprob(), .top = {}};
    for (const v1::TokenLogprob& top : wire.top()) {
      detail.top.push_back({.token = top.token_id(), .logprob = top.logprob()});
    }
    result.logprobs.push_back(std::move(detail));
  }
}

// Adds one event to the results and returns its text. Internal if the event is for a choice that
// the request did not ask for.
absl::StatusOr<std::string> TakeEvent(const v1::GenerateResponse& response,
                                      std::vector<JobResult>& results) {
  const auto result_of = [&](int32_t choice) -> absl::StatusOr<JobResult*> {
    if (choice >= 0 && static_cast<size_t>(choice) < results.size()) return &results[choice];
    return absl::InternalError(StrCat("the router sent choice ", choice,
                                      ", but the number of choices is ", results.size()));
  };
  std::string text;
  if (response.has_started()) {
    const auto& ids = response.started().prompt_token_ids();
    for (JobResult& result : results) result.prompt_token_ids.assign(ids.begin(), ids.end());
  } else if (response.has_tokens()) {
    ASSIGN_OR_RETURN(JobResult * result, result_of(response.tokens().choice()));
    TakeTokens(response.tokens(), *result);
    text = response.tokens().text();
    result->text += text;
  } else if (response.has_finished()) {
    ASSIGN_OR_RETURN(JobResult * result, result_of(response.finished().choice()));
    TakeFinished(response.finished(), *result);
    text = response.finished().text();
    result->text += text;
  }
  return text;
}

// Returns the error of a call to `router`. Without a connection, the message says what to do.
absl::Status FromRouter(const grpc::Status& status, grpc::Channel& channel,
                        const std::string& router) {
  absl::Status failure = FromGrpcStatus(status);
  const bool connected =
      channel.GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_TRANSIENT_FAILURE;
  if (connected || !absl::IsUnavailable(failure)) return failure;
  return absl::UnavailableError(StrCat("no router answers at ", router,
                                       ": start one with `baton up`, or give --router (",
                                       failure.message(), ")"));
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
    : options_(options), connection_(NewConnection(options.router)) {}

RouterClient::Connection RouterClient::NewConnection(const std::string& router) {
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(router);
  return {.channel = channel, .stub = v1::Inference::NewStub(channel)};
}

absl::StatusOr<std::vector<JobResult>> RouterClient::Run(
    const Job& job, const std::function<void(std::string_view)>& on_text) {
  RETURN_IF_ERROR(CheckTexts(job));
  grpc::ClientContext context;
  if (options_.timeout_ms > 0) context.set_deadline(DeadlineIn(options_.timeout_ms));
  {
    std::lock_guard lock(mutex_);
    if (interrupted_) return NotBegun(absl::CancelledError("interrupted"));
    running_.insert(&context);
  }
  std::vector<JobResult> results = EmptyResults(job);
  const Connection connection = Usable();
  const auto reader = connection.stub->Generate(&context, RequestToWire(job, options_.placement));
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
  if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) connection_ = NewConnection(options_.router);
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
  Connection connection = NewConnection(options_.router);
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
  const grpc::Status status =
      connection.stub->GetStatus(&context, v1::GetStatusRequest(), &response);
  if (!status.ok()) return FromRouter(status, *connection.channel, options_.router);
  return response;
}

absl::StatusOr<SamplingDefaults> RouterClient::RecommendedSampling() {
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(kModelTimeoutMs));
  v1::GetModelResponse response;
  const grpc::Status status = Usable().stub->GetModel(&context, v1::GetModelRequest(), &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return SamplingDefaultsFromWire(response.recommended_sampling());
}

absl::StatusOr<std::vector<std::string>> RouterClient::Pieces(const std::vector<TokenId>& tokens) {
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(kPiecesTimeoutMs));
  v1::DetokenizeRequest request;
  request.mutable_ids()->Add(tokens.begin(), tokens.end());
  request.set_with_pieces(true);
  v1::DetokenizeResponse response;
  const grpc::Status status = Usable().stub->Detokenize(&context, request, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return std::vector<std::string>(response.pieces().begin(), response.pieces().end());
}

}  // namespace baton
