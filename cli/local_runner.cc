#include "cli/local_runner.h"

#include <chrono>
#include <ctime>
#include <future>
#include <utility>

#include "common/entropy.h"
#include "common/status_macros.h"

namespace baton {
namespace {

// Gathers one request's answers and wakes the thread that waits for the end.
class CollectingSink final : public RequestSink {
 public:
  explicit CollectingSink(const std::function<void(std::string_view)>& on_text)
      : on_text_(on_text) {}

  void OnTicket(const TransferTicket&) override {}
  void OnTokens(TokenOutput output) override {
    result_.token_ids.insert(result_.token_ids.end(), output.token_ids.begin(),
                             output.token_ids.end());
    for (TokenDetail& detail : output.logprobs) {
      result_.logprobs.push_back({detail.logprob, std::move(detail.top)});
    }
    AddText(output.text);
  }
  void OnFinish(FinishInfo info) override {
    AddText(info.text);
    result_.finish_reason = FinishReasonName(info.reason);
    result_.prompt_tokens = info.prompt_tokens;
    result_.completion_tokens = info.completion_tokens;
    result_.logits_hash = info.logits_hash;
    const RequestLedger& l = info.ledger;
    result_.cached_tokens = l.kv_bytes > 0 ? l.prefill_cached_tokens : l.cached_tokens;
    result_.ledger = {{"queue_us", l.queue_us},
                      {"prefill_us", l.prefill_us},
                      {"prefill_chunks", l.prefill_chunks},
                      {"kv_bytes", l.kv_bytes},
                      {"kv_transfer_us", l.kv_transfer_us},
                      {"admit_us", l.admit_us},
                      {"first_token_us", l.first_token_us},
                      {"inter_token_us", l.inter_token_us},
                      {"total_us", l.total_us},
                      {"computed_tokens", l.computed_tokens},
                      {"preemptions", l.preemptions}};
    end_.set_value(std::move(result_));
  }
  void OnError(absl::Status status) override { end_.set_value(std::move(status)); }

  std::future<absl::StatusOr<JobResult>> End() { return end_.get_future(); }

 private:
  void AddText(const std::string& text) {
    if (text.empty()) return;
    result_.text += text;
    on_text_(text);
  }

  const std::function<void(std::string_view)>& on_text_;
  JobResult result_;
  std::promise<absl::StatusOr<JobResult>> end_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LocalRunner>> LocalRunner::Create(const EngineOptions& options,
                                                                 LocalPath path) {
  auto runner = std::make_unique<LocalRunner>();
  if (path == LocalPath::kOneEngine) {
    ASSIGN_OR_RETURN(runner->engine_, Engine::Create(options));
  } else {
    const PairTransport transport = path == LocalPath::kLoopback ? PairTransport::kLoopback
                                    : path == LocalPath::kTcp    ? PairTransport::kTcp
                                                                 : PairTransport::kShm;
    ASSIGN_OR_RETURN(runner->pair_, InProcessPair::Create(options, transport));
  }
  runner->encoder_.emplace(&runner->engine().tokenizer(),
                           runner->engine().model_info().chat_template);
  return runner;
}

absl::StatusOr<std::vector<TokenId>> LocalRunner::Encode(const Job& job) {
  if (job.prompt_token_ids.has_value()) return *job.prompt_token_ids;
  if (job.prompt.has_value()) return encoder_->EncodeText(*job.prompt);
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  return encoder_->EncodeMessages(*job.messages, /*add_generation_prompt=*/true, local);
}

absl::StatusOr<JobResult> LocalRunner::Run(const Job& job,
                                           const std::function<void(std::string_view)>& on_text) {
  const auto begin = std::chrono::steady_clock::now();
  GenerateRequest request;
  request.request_id = job.id;
  ASSIGN_OR_RETURN(request.prompt, Encode(job));
  const auto encoded = std::chrono::steady_clock::now();
  request.sampling = job.sampling;
  if (!request.sampling.seed.has_value()) request.sampling.seed = EntropyBits();
  request.cache_namespace = MakeNamespace({.tenant = job.tenant,
                                           .cache_salt = job.cache_salt,
                                           .lora = {},
                                           .model_revision = engine().model_info().fingerprint});
  request.priority = job.priority;
  const std::vector<TokenId> prompt = request.prompt;
  auto sink = std::make_shared<CollectingSink>(on_text);
  std::future<absl::StatusOr<JobResult>> end = sink->End();
  RequestHandle handle = 0;
  {
    std::lock_guard lock(mutex_);
    if (interrupted_) return absl::CancelledError("interrupted");
    handle = pair_ != nullptr ? pair_->Generate(std::move(request), sink)
                              : engine_->Generate(std::move(request), sink);
    running_.insert(handle);
  }
  absl::StatusOr<JobResult> result = end.get();
  {
    std::lock_guard lock(mutex_);
    running_.erase(handle);
  }
  if (!result.ok()) return result;
  result->id = job.id;
  result->prompt_token_ids = prompt;
  result->ledger.insert(
      result->ledger.begin(),
      {"tokenize_us",
       std::chrono::duration_cast<std::chrono::microseconds>(encoded - begin).count()});
  return result;
}

void LocalRunner::Interrupt() {
  std::lock_guard lock(mutex_);
  interrupted_ = true;
  for (const RequestHandle handle : running_) engine().Cancel(handle);
}

}  // namespace baton
