#include "router/grpc/request_ledger.h"

#include <algorithm>

namespace baton {
namespace {

constexpr int64_t kMostBytesPerToken = int64_t{1} << 24;  // KV bytes; far more than any model has
constexpr int64_t kMostPulledBytes = int64_t{1} << 60;

}  // namespace

void RequestLedgerBuilder::TokensArrived(int64_t now_us, int32_t count, int32_t choice) {
  if (first_token_us_ == 0) first_token_us_ = now_us;
  Progress& progress = progress_[choice];
  if (progress.first_token_us == 0) {
    progress.first_token_us = now_us;
  } else {
    progress.tokens_after_first += count;
  }
  progress.last_token_us = now_us;
}

void RequestLedgerBuilder::Complete(int64_t now_us, const std::string& prefill_worker,
                                    const std::string& decode_worker,
                                    v1::Finished& finished) const {
  v1::Ledger& ledger = *finished.mutable_ledger();
  const int64_t tokenized_us = std::max(tokenized_us_, received_us_);
  ledger.set_tokenize_us(tokenized_us - received_us_);
  ledger.set_route_us(std::max<int64_t>(0, routed_us_ - tokenized_us - pull_us_));
  const auto found = progress_.find(finished.choice());
  const Progress progress = found == progress_.end() ? Progress() : found->second;
  const int64_t decode_us = progress.last_token_us - progress.first_token_us;
  ledger.set_first_token_us(progress.first_token_us == 0 ? 0
                                                         : progress.first_token_us - received_us_);
  ledger.set_inter_token_us(
      progress.tokens_after_first == 0 ? 0 : decode_us / progress.tokens_after_first);
  ledger.set_total_us(now_us - received_us_);
  ledger.set_decode_worker(decode_worker);
  ledger.set_prefill_worker(prefill_worker);
  ledger.set_pull_us(pull_us_);
  ledger.set_pulled_tokens(pulled_tokens_);
  ledger.set_pull_source(pull_source_);
  ledger.set_chunk_pulled_bytes(
      std::clamp<int64_t>(ledger.chunk_pulled_bytes(), 0, kMostPulledBytes) + chunk_pulled_bytes_);
  if (prefill_) AddPrefill(finished);
  // A worker that resumed an answer also counts generated tokens that it found in its cache.
  v1::Usage& usage = *finished.mutable_usage();
  usage.set_cached_tokens(std::min(usage.cached_tokens(), usage.prompt_tokens()));
}

void RequestLedgerBuilder::AddPrefill(v1::Finished& finished) const {
  v1::Ledger& ledger = *finished.mutable_ledger();

  // The prefill worker's own figures come first. The others came with the KV to the decode worker,
  // or the decode worker added them; the report fills only those that are 0.
  // The decode worker's figure contains that of the prefill worker, if KV came, and its own.
  ledger.set_queue_us(std::max(ledger.queue_us(), prefill_->queue_us()));
  ledger.set_prefill_us(prefill_->prefill_us());
  ledger.set_prefill_chunks(prefill_->chunks());
  ledger.set_prefill_cached_tokens(prefill_->cached_tokens());
  if (ledger.computed_tokens() == 0) ledger.set_computed_tokens(prefill_->computed_tokens());
  if (ledger.kv_bytes() == 0) ledger.set_kv_bytes(prefill_->kv_bytes());
  if (ledger.kv_transfer_us() == 0) ledger.set_kv_transfer_us(prefill_->kv_transfer_us());
  ledger.set_kv_exposed_us(prefill_->kv_exposed_us());
  finished.mutable_usage()->set_cached_tokens(prefill_->cached_tokens());
}

FinishedRequest FinishedFromLedger(const RoutePlan& plan, int32_t decode_batch,
                                   bool prefill_reported, const v1::Finished& finished) {
  const v1::Ledger& ledger = finished.ledger();
  // Workers are not trusted with the throughput model: each time must lie within the request's
  // total time, and token counts within its tokens.
  const int64_t total_us = std::max<int64_t>(0, ledger.total_us());
  const auto time = [&](int64_t us) { return std::clamp<int64_t>(us, 0, total_us); };
  const int64_t length = std::max<int64_t>(
      0, int64_t{finished.usage().prompt_tokens()} + finished.usage().completion_tokens());
  const auto tokens = [&](int32_t count) {
    return static_cast<int32_t>(std::clamp<int64_t>(count, 0, length));
  };
  FinishedRequest out{.decode = plan.decode, .prefill = plan.prefill};
  out.completion_tokens = finished.usage().completion_tokens();
  if (ledger.preemptions() > 0) return out;  // the times span several attempts
  out.inter_token_us = ledger.inter_token_us();
  out.decode_batch = decode_batch;
  if (plan.prefill && !prefill_reported) return out;
  out.cached_tokens =
      tokens(plan.prefill ? ledger.prefill_cached_tokens() : ledger.decode_cached_tokens());
  out.computed_tokens = tokens(ledger.computed_tokens());
  out.queue_us = time(ledger.queue_us());
  out.prefill_us = time(ledger.prefill_us());
  out.kv_bytes = std::clamp<int64_t>(ledger.kv_bytes(), 0, kMostBytesPerToken * length);
  out.kv_transfer_us = time(ledger.kv_transfer_us());
  out.first_token_us = ledger.first_token_us() - ledger.tokenize_us() - time(ledger.pull_us());
  return out;
}

FinishedPull FinishedFromPull(WorkerNumber receiver, int64_t us, int32_t asked,
                              const v1::PulledPrefix& told) {
  return {
      .receiver = receiver,
      .us = us,
      .kv_bytes = std::clamp<int64_t>(told.kv_bytes(), 0, kMostBytesPerToken * asked),
      .kv_transfer_us = std::clamp<int64_t>(told.kv_transfer_us(), 0, std::max<int64_t>(0, us))};
}

}  // namespace baton
