#include "cli/grpc_target_client.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "cli/connection_client.h"
#include "common/str_cat.h"
#include "loadtest/request_record.h"
#include "rpc/channel.h"
#include "rpc/status_conversion.h"

namespace baton {
namespace {

constexpr CalledProcess kTarget = {
    .kind = "router",
    .option = "--target",
    .missing_advice = "start one with `baton up`, or give another --target",
    .address_advice = "give a router's address with --target",
};

void FillPart(const PromptPiece& piece, bool as_text, v1::PromptPart& part) {
  if (as_text) {
    part.set_text(PieceText(piece));
  } else {
    part.mutable_token_ids()->mutable_ids()->Add(piece.tokens.begin(), piece.tokens.end());
  }
}

void FillMessages(const LoadRequest& request, v1::Messages& messages) {
  for (const PromptPiece& piece : request.pieces) {
    v1::ChatMessage* message = messages.add_messages();
    message->set_role(piece.role == PieceRole::kSystem      ? "system"
                      : piece.role == PieceRole::kAssistant ? "assistant"
                                                            : "user");
    message->set_content(PieceText(piece));
  }
}

void FillParts(const LoadRequest& request, bool as_text, v1::PromptParts& parts) {
  for (const PromptPiece& piece : request.pieces) {
    FillPart(piece, as_text,
             piece.role == PieceRole::kChunk    ? *parts.add_chunks()
             : piece.role == PieceRole::kSystem ? *parts.mutable_system()
                                                : *parts.mutable_question());
  }
}

v1::GenerateRequest LoadRequestToWire(const LoadRequest& request, bool as_text, bool ignore_eos,
                                      const std::string& api_key) {
  v1::GenerateRequest out;
  out.set_api_key(api_key);
  const bool is_chat = request.conversation >= 0;
  if (is_chat && as_text) {
    FillMessages(request, *out.mutable_messages());
  } else if (!is_chat && request.pieces.size() > 1) {
    FillParts(request, as_text, *out.mutable_parts());
  } else if (as_text) {
    out.set_prompt(PieceText(request.pieces.front()));
  } else {
    const std::vector<TokenId> tokens = AllTokens(request);
    out.mutable_prompt_token_ids()->mutable_ids()->Add(tokens.begin(), tokens.end());
  }
  if (is_chat) out.set_session_id(StrCat("load-", request.conversation));
  v1::SamplingParams& sampling = *out.mutable_sampling();
  sampling.set_temperature(0);
  sampling.set_max_tokens(request.output_tokens);
  sampling.set_ignore_eos(ignore_eos);
  return out;
}

void TakeUsageAndLedger(const v1::Finished& finished, AnswerEnd& end) {
  end.prompt_tokens = finished.usage().prompt_tokens();
  end.cached_tokens = finished.usage().cached_tokens();
  end.output_tokens = finished.usage().completion_tokens();
  const v1::Ledger& ledger = finished.ledger();
  end.ledger = {{"tokenize_us", ledger.tokenize_us()},
                {"route_us", ledger.route_us()},
                {"queue_us", ledger.queue_us()},
                {"prefill_us", ledger.prefill_us()},
                {"prefill_chunks", ledger.prefill_chunks()},
                {"pull_us", ledger.pull_us()},
                {"pulled_tokens", ledger.pulled_tokens()},
                {"kv_bytes", ledger.kv_bytes()},
                {"kv_transfer_us", ledger.kv_transfer_us()},
                {"kv_exposed_us", ledger.kv_exposed_us()},
                {"admit_us", ledger.admit_us()},
                {"first_token_us", ledger.first_token_us()},
                {"inter_token_us", ledger.inter_token_us()},
                {"total_us", ledger.total_us()},
                {"preemptions", ledger.preemptions()},
                {"resumes", ledger.resumes()},
                {"chunks", ledger.chunks()},
                {"chunk_hits", ledger.chunk_hits()}};
}

AnswerEnd FailureOf(const grpc::Status& status) {
  const absl::Status failure = FromGrpcStatus(status);
  AnswerEnd end;
  end.outcome =
      absl::IsResourceExhausted(failure) ? RequestOutcome::kRefused : RequestOutcome::kFailed;
  end.error = absl::StatusCodeToString(failure.code());
  end.error_message = std::string(failure.message());
  return end;
}

}  // namespace

// The target keeps it until gRPC has reported the end.
class GrpcTarget::Call final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  Call(GrpcTarget& target, const LoadRequest& request, std::shared_ptr<AnswerSink> sink)
      : target_(target),
        request_(LoadRequestToWire(request, target.options_.as_text, target.options_.ignore_eos,
                                   target.options_.connection.api_key)),
        sink_(std::move(sink)) {}

  void Begin(v1::Inference::Stub& stub) {
    if (target_.options_.timeout_ms > 0) {
      context_.set_deadline(DeadlineIn(target_.options_.timeout_ms));
    }
    stub.async()->Generate(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (response_.has_tokens()) {
      const v1::Tokens& tokens = response_.tokens();
      sink_->OnContent(tokens.text(), std::span(tokens.token_ids().data(), tokens.token_ids_size()),
                       tokens.token_ids_size());
    } else if (response_.has_finished()) {
      sink_->OnLastText(response_.finished().text());
      TakeUsageAndLedger(response_.finished(), end_);
      is_finished_ = true;
    }
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    if (!status.ok()) {
      end_ = FailureOf(status);
    } else if (is_finished_) {
      end_.outcome = RequestOutcome::kWhole;
    } else {
      end_.error = "cut stream";
      end_.error_message = "the router ended the stream without finishing";
    }
    sink_->OnEnd(std::move(end_));
    target_.Forget(this);  // destroys this
  }

 private:
  GrpcTarget& target_;
  grpc::ClientContext context_;
  const v1::GenerateRequest request_;
  v1::GenerateResponse response_;
  std::shared_ptr<AnswerSink> sink_;
  AnswerEnd end_;
  bool is_finished_ = false;
};

GrpcTarget::GrpcTarget(const GrpcTargetOptions& options) : options_(options) {
  for (int32_t i = 0; i < options.connections; ++i) {
    channels_.push_back(MakeChannel(options.address, options.connection.to_routers));
    stubs_.push_back(v1::Inference::NewStub(channels_.back()));
  }
}

GrpcTarget::~GrpcTarget() {
  std::unique_lock lock(mutex_);
  all_ended_.wait(lock, [this] { return calls_.empty(); });
}

absl::StatusOr<TargetModel> GrpcTarget::Describe(int64_t timeout_ms) {
  // Every connection is opened now, so that no request waits for one.
  v1::GetModelRequest request;
  request.set_api_key(options_.connection.api_key);
  v1::GetModelResponse response;
  for (size_t i = 0; i < stubs_.size(); ++i) {
    grpc::ClientContext context;
    context.set_deadline(DeadlineIn(timeout_ms));
    const grpc::Status status = stubs_[i]->GetModel(&context, request, &response);
    if (status.ok()) continue;
    return ExplainFailure(kTarget, options_.address, *channels_[i], FromGrpcStatus(status));
  }
  return TargetModel{.name = response.name(),
                     .vocabulary = response.vocabulary(),
                     .context_length = response.context_length()};
}

void GrpcTarget::Send(const LoadRequest& request, std::shared_ptr<AnswerSink> sink) {
  const auto call = std::make_shared<Call>(*this, request, std::move(sink));
  {
    std::lock_guard lock(mutex_);
    calls_.emplace(call.get(), call);
  }
  call->Begin(*stubs_[next_stub_++ % stubs_.size()]);
}

void GrpcTarget::CancelAll() {
  std::lock_guard lock(mutex_);
  for (const auto& [call, owner] : calls_) call->Cancel();
}

void GrpcTarget::Forget(Call* call) {
  std::shared_ptr<Call> last;  // destroyed behind the lock
  std::lock_guard lock(mutex_);
  const auto at = calls_.find(call);
  last = std::move(at->second);
  calls_.erase(at);
  if (calls_.empty()) all_ended_.notify_all();
}

}  // namespace baton
