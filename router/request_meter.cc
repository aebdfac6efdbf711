#include "router/request_meter.h"

#include <algorithm>

namespace baton {

void RequestMeter::Refused(MetricSet* metrics, Endpoint endpoint, const absl::Status& status,
                           Refusal reason) {
  if (metrics == nullptr) return;
  metrics->Add(Metric::kRequests, 1, endpoint, LabelOf(status));
  metrics->Add(Metric::kRefused, 1, reason);
}

void RequestMeter::Tokenized(int64_t now_us) {
  if (metrics_ != nullptr) metrics_->Observe(Metric::kTokenizeSeconds, now_us - received_us_);
}

void RequestMeter::Routed(const RoutePlan& plan, int64_t now_us) {
  ++routes_;
  routed_us_ = now_us;
  plan_ = plan;
  if (metrics_ == nullptr) return;
  metrics_->Add(Metric::kRoutes, 1,
                plan.prefill ? PrefillPlace::kPrefillWorker : PrefillPlace::kDecodeWorker);
}

void RequestMeter::TokensArrived(int64_t now_us, int32_t count, int32_t choice) {
  if (count <= 0) return;
  const bool first = first_token_us_ == 0;
  if (first) first_token_us_ = now_us;
  if (metrics_ == nullptr) return;
  metrics_->Add(Metric::kOutputTokens, count);
  if (first) {
    metrics_->Observe(Metric::kTimeToFirstToken, now_us - received_us_);
    const int64_t measured_us = now_us - routed_us_;
    if (routes_ == 1 && plan_.first_token_us > 0 && measured_us > 0) {
      constexpr double kMillionths = 1e6;
      metrics_->Observe(
          Metric::kRouteEstimateRatio,
          static_cast<int64_t>(kMillionths * static_cast<double>(plan_.first_token_us) /
                               static_cast<double>(measured_us)));
    }
  }
  const auto [last, first_message] = last_tokens_us_.try_emplace(choice, now_us);
  if (first_message) return;
  metrics_->ObserveTimes(Metric::kInterToken, (now_us - last->second) / count, count);
  last->second = now_us;
}

void RequestMeter::PullEnded(PullOutcomeLabel outcome) {
  if (metrics_ != nullptr) metrics_->Add(Metric::kRoutePulls, 1, outcome);
}

void RequestMeter::WorkerLost(PrefillPlace role) {
  if (metrics_ != nullptr) metrics_->Add(Metric::kRequestWorkerLosses, 1, role);
}

std::optional<Refusal> RequestMeter::ReasonOf(const absl::Status& status) const {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      return Refusal::kInvalid;
    case absl::StatusCode::kResourceExhausted:
      return routes_ > 0 ? Refusal::kNoRoom : Refusal::kLimit;
    case absl::StatusCode::kUnavailable:
      return shuts_down_ ? Refusal::kShutdown : Refusal::kNoWorker;
    default:
      return std::nullopt;
  }
}

void RequestMeter::Ended(const absl::Status& status, int64_t now_us, const PromptFigures& prompt) {
  if (metrics_ == nullptr) return;
  metrics_->Add(Metric::kRequests, 1, endpoint_, LabelOf(status));
  if (status.ok()) {
    metrics_->Observe(Metric::kRequestSeconds, now_us - received_us_);
    return CountPrompt(prompt);
  }
  if (first_token_us_ != 0) return;
  if (const std::optional<Refusal> reason = ReasonOf(status)) {
    metrics_->Add(Metric::kRefused, 1, *reason);
  }
}

// Workers are not trusted: the parts never exceed the prompt, and add up to it.
void RequestMeter::CountPrompt(const PromptFigures& prompt) {
  int64_t left = std::max<int64_t>(0, prompt.prompt_tokens);
  const auto take = [&](int64_t tokens, PromptSource source) {
    const int64_t taken = std::clamp<int64_t>(tokens, 0, left);
    left -= taken;
    metrics_->Add(Metric::kPromptTokens, taken, source);
    return taken;
  };
  const int64_t computed = take(prompt.computed_tokens, PromptSource::kComputed);
  const int64_t not_computed = left;
  take(prompt.pulled_tokens, PromptSource::kPulled);
  if (prompt.prefilled_elsewhere) {
    take(prompt.decode_cached_tokens, PromptSource::kCached);
    take(left, PromptSource::kTransferred);
  } else {
    take(left, PromptSource::kCached);
  }
  metrics_->Add(Metric::kAvoidablePromptTokens,
                std::clamp<int64_t>(plan_.held_tokens - not_computed, 0, computed));
}

}  // namespace baton
