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
  CollectingSink(int32_t n, const std::function<void(std::string_view)>& on_text)
      : on_text_(on_text), results_(static_cast<size_t>(n)) {}

  void OnTicket(const TransferTicket&) override {}
  void OnTokens(TokenOutput output) override {
    JobResult& result = results_[static_cast<size_t>(output.choice)];
    result.token_ids.insert(result.token_ids.end(), output.token_ids.begin(),
                            output.token_ids.end());
    for (TokenDetail& detail : output.logprobs) {
      result.logprobs.push_back({detail.logprob, std::move(detail.top)});
    }
    AddText(result, output.text);
  }
  void OnFinish(FinishInfo info) override {
    JobResult& result = results_[static_cast<size_t>(info.choice)];
    AddText(result, info.text);
    result.finish_reason = FinishReasonName(info.reason);
    result.prompt_tokens = info.prompt_tokens;
    result.completion_tokens = info.completion_tokens;
    result.logits_hash = info.logits_hash;
    const RequestLedger& l = info.ledger;
    result.cached_tokens = l.CachedWherePrefilled();
    const ChunkLedger& c = l.chunk;
    result.ledger = {{"queue_us", l.queue_us},
                     {"prefill_us", l.prefill_us},
                     {"prefill_chunks", l.prefill_chunks},
                     {"kv_bytes", l.kv_bytes},
                     {"kv_transfer_us", l.kv_transfer_us},
                     {"admit_us", l.admit_us},
                     {"first_token_us", l.first_token_us},
                     {"inter_token_us", l.inter_token_us},
                     {"total_us", l.total_us},
                     {"computed_tokens", l.computed_tokens},
                     {"preemptions", l.preemptions},
                     {"chunks", c.chunks},
                     {"chunk_hits", c.hits},
                     {"chunk_repaired_tokens", c.repaired_tokens},
                     {"chunk_pulled_bytes", c.pulled_bytes},
                     {"chunk_lookup_us", c.lookup_us},
                     {"chunk_compute_us", c.compute_us},
                     {"chunk_place_us", c.place_us},
                     {"chunk_repair_us", c.repair_us},
                     {"chunk_wake_us", c.wake_us}};
    if (info.last) end_.set_value(std::move(results_));
  }
  void OnError(absl::Status status) override { end_.set_value(std::move(status)); }

  std::future<absl::StatusOr<std::vector<JobResult>>> End() { return end_.get_future(); }

 private:
  void AddText(JobResult& result, const std::string& text) {
    result.text += text;
    if (on_text_ && !text.empty() && results_.size() == 1) on_text_(text);
  }

  const std::function<void(std::string_view)>& on_text_;
  std::vector<JobResult> results_;
  std::promise<absl::StatusOr<std::vector<JobResult>>> end_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LocalRunner>> LocalRunner::Create(
    const EngineOptions& options, LocalPath path, std::optional<KvGeometry> prefill_pool,
    int32_t prefill_ranks) {
  auto runner = std::make_unique<LocalRunner>();
  if (path == LocalPath::kOneEngine) {
    ASSIGN_OR_RETURN(runner->engine_, Engine::Create(options));
  } else {
    const PairTransport transport = path == LocalPath::kLoopback ? PairTransport::kLoopback
                                    : path == LocalPath::kTcp    ? PairTransport::kTcp
                                    : path == LocalPath::kShm    ? PairTransport::kShm
                                                                 : PairTransport::kNccl;
    ASSIGN_OR_RETURN(runner->pair_,
                     InProcessPair::Create(options, transport, prefill_pool, prefill_ranks));
  }
  runner->encoder_.emplace(&runner->engine().tokenizer(),
                           runner->engine().model_info().chat_template);
  return runner;
}

absl::StatusOr<EncodedPrompt> LocalRunner::Encode(const Job& job) {
  if (job.prompt_token_ids.has_value()) {
    return EncodedPrompt{.tokens = *job.prompt_token_ids, .chunked = std::nullopt};
  }
  const ChunkForm form = {
      .separator = job.chunk_separator ? *job.chunk_separator : std::string_view(),
      .options = job.chunk_options};
  if (job.prompt.has_value()) return encoder_->EncodePrompt(*job.prompt, form);
  if (job.parts.has_value()) return encoder_->EncodeParts(*job.parts, form.options);
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  return encoder_->EncodeMessages(*job.messages, /*add_generation_prompt=*/true, local, form);
}

absl::StatusOr<std::vector<JobResult>> LocalRunner::Run(
    const Job& job, const std::function<void(std::string_view)>& on_text) {
  const auto begin = std::chrono::steady_clock::now();
  GenerateRequest request;
  request.request_id = job.id;
  ASSIGN_OR_RETURN(EncodedPrompt encoded_prompt, Encode(job));
  request.prompt = std::move(encoded_prompt.tokens);
  request.chunked = std::move(encoded_prompt.chunked);
  const auto encoded = std::chrono::steady_clock::now();
  request.n = job.n;
  request.sampling = job.sampling;
  if (!request.sampling.seed.has_value()) request.sampling.seed = EntropyBits();
  request.cache_namespace = MakeNamespace({.tenant = job.tenant,
                                           .cache_salt = job.cache_salt,
                                           .lora = {},
                                           .model_revision = engine().model_info().fingerprint});
  request.priority = job.priority;
  const std::vector<TokenId> prompt = request.prompt;
  auto sink = std::make_shared<CollectingSink>(job.n, on_text);
  std::future<absl::StatusOr<std::vector<JobResult>>> end = sink->End();
  RequestHandle handle = 0;
  {
    std::lock_guard lock(mutex_);
    if (interrupted_) return NotBegun(absl::CancelledError("interrupted"));
    handle = pair_ != nullptr ? pair_->Generate(std::move(request), sink)
                              : engine_->Generate(std::move(request), sink);
    running_.insert(handle);
  }
  absl::StatusOr<std::vector<JobResult>> results = end.get();
  {
    std::lock_guard lock(mutex_);
    running_.erase(handle);
  }
  if (!results.ok()) return results;
  for (size_t i = 0; i < results->size(); ++i) {
    JobResult& result = (*results)[i];
    if (job.n > 1) result.choice = static_cast<int32_t>(i);
    result.prompt_token_ids = prompt;
    result.ledger.insert(
        result.ledger.begin(),
        {"tokenize_us",
         std::chrono::duration_cast<std::chrono::microseconds>(encoded - begin).count()});
  }
  return results;
}

absl::StatusOr<std::vector<std::string>> LocalRunner::Pieces(const std::vector<TokenId>& tokens) {
  std::vector<std::string> pieces;
  for (const TokenId token : tokens) pieces.emplace_back(engine().tokenizer().TokenBytes(token));
  return pieces;
}

void LocalRunner::Interrupt() {
  std::lock_guard lock(mutex_);
  interrupted_ = true;
  for (const RequestHandle handle : running_) engine().Cancel(handle);
}

}  // namespace baton
