#include "worker_rpc/work_trace.h"

#include <algorithm>
#include <string>
#include <utility>

namespace baton {

WorkTrace::WorkTrace(const Tracer* tracer, std::string_view trace_parent, int64_t now_us)
    : tracer_(tracer), arrived_us_(now_us) {
  if (tracer == nullptr) return;
  const std::optional<TraceContext> router = ParseTraceParent(trace_parent);
  const TraceContext context = router.has_value() ? *router : tracer->NewSpan(std::nullopt);
  if (!context.sampled) return;
  parent_ = context;
  parent_span_ = router.has_value() ? context.span : 0;
}

Span WorkTrace::Part(std::string_view name, int64_t begin_us, int64_t end_us) const {
  return {.context = tracer_->NewSpan(parent_),
          .parent = parent_span_,
          .name = std::string(name),
          .begin_us = begin_us,
          .end_us = std::max(begin_us, end_us)};
}

void WorkTrace::RecordPrompt(int64_t queue_us, int64_t prefill_us, int64_t cached_tokens,
                             int64_t computed_tokens, int64_t end_us) const {
  const int64_t begin_us = std::min(arrived_us_ + queue_us, end_us);
  tracer_->Record(Part("queue", arrived_us_, begin_us));
  Span prefill = Part("prefill", begin_us, std::min(begin_us + prefill_us, end_us));
  prefill.Add("baton.cached_tokens", cached_tokens);
  prefill.Add("baton.computed_tokens", computed_tokens);
  tracer_->Record(std::move(prefill));
}

void WorkTrace::RecordTransfer(const RequestLedger& ledger) const {
  if (ledger.kv_bytes == 0) return;  // everything was cached here
  const int64_t end_us = std::max(arrived_us_, first_token_us_ - ledger.admit_us);
  Span transfer = Part("transfer", std::max(arrived_us_, end_us - ledger.kv_transfer_us), end_us);
  transfer.Add("baton.kv_bytes", ledger.kv_bytes);
  tracer_->Record(std::move(transfer));
}

void WorkTrace::TokensArrived(int64_t now_us) {
  if (first_token_us_ == 0) first_token_us_ = now_us;
}

void WorkTrace::ChoiceFinished(const FinishInfo& info) {
  if (!parent_.has_value()) return;
  output_tokens_ += info.completion_tokens;
  if (!ledger_.has_value()) ledger_ = info.ledger;
}

void WorkTrace::DecodeEnded(const absl::Status& status, int64_t now_us) {
  if (!parent_.has_value()) return;
  if (first_token_us_ == 0 && !ledger_.has_value()) {  // it failed before it had a token
    Span span = Part("prefill", arrived_us_, now_us);
    span.code = status.code();
    return tracer_->Record(std::move(span));
  }
  if (first_token_us_ == 0) first_token_us_ = now_us;  // the answer has no token
  if (ledger_.has_value() && ledger_->prefilled_elsewhere) {
    RecordTransfer(*ledger_);
  } else if (ledger_.has_value()) {
    RecordPrompt(ledger_->queue_us, ledger_->prefill_us, ledger_->cached_tokens,
                 ledger_->computed_tokens, first_token_us_);
  }
  Span decode = Part("decode", first_token_us_, now_us);
  decode.code = status.code();
  if (ledger_.has_value()) {
    decode.Add("baton.output_tokens", output_tokens_);
    decode.Add("baton.preemptions", int64_t{ledger_->preemptions});
  }
  tracer_->Record(std::move(decode));
}

void WorkTrace::PrefillEnded(const absl::StatusOr<PrefillResult>& result, int64_t now_us) {
  if (!parent_.has_value()) return;
  if (result.ok()) {
    return RecordPrompt(result->queue_us, result->prefill_us, result->cached_tokens,
                        result->computed_tokens, now_us);
  }
  Span span = Part("prefill", arrived_us_, now_us);
  span.code = result.status().code();
  tracer_->Record(std::move(span));
}

}  // namespace baton
