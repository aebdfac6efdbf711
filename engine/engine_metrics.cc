#include "engine/engine_metrics.h"

namespace baton {

void EngineMetrics::StepEnded(int64_t us, int64_t prompt_tokens, int64_t decode_tokens) const {
  if (set_ == nullptr || prompt_tokens + decode_tokens == 0) return;
  const StepWork work = decode_tokens == 0   ? StepWork::kPrefill
                        : prompt_tokens == 0 ? StepWork::kDecode
                                             : StepWork::kMixed;
  set_->Observe(Metric::kWorkerStepSeconds, us, work);
}

void EngineMetrics::PullEnded(const absl::StatusOr<PullResult>& result) const {
  if (set_ == nullptr) return;
  const bool pulled = result.ok() && result->pulled_tokens > 0;
  set_->Add(Metric::kKvPulls, 1,
            pulled        ? PullOutcomeLabel::kPulled
            : result.ok() ? PullOutcomeLabel::kNothing
                          : PullOutcomeLabel::kFailed);
  if (pulled) {
    set_->Add(Metric::kWorkerPromptTokens, result->pulled_tokens, PromptSource::kPulled);
  }
}

void EngineMetrics::OnTransferEvent(const TransferEvent& event) const {
  using Kind = TransferEvent::Kind;
  if (set_ == nullptr || event.kind == Kind::kReceiving) return;
  const bool received = event.kind == Kind::kReceived || event.kind == Kind::kReceiveFailed;
  const Direction direction = received ? Direction::kReceived : Direction::kSent;
  if (event.kind == Kind::kReceived || event.kind == Kind::kSent) {
    set_->Add(Metric::kKvTransfers, 1, direction);
    set_->Observe(Metric::kKvTransferSeconds, event.busy_us, direction);
    if (event.kind == Kind::kSent) set_->Observe(Metric::kKvExposedSeconds, event.exposed_us);
    return;
  }
  set_->Add(Metric::kKvTransferFailures, 1, direction, TransferFailureOf(event.status.code()));
}

}  // namespace baton
