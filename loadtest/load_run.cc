#include "loadtest/load_run.h"

#include <utility>

#include "common/check.h"

namespace baton {

LoadRun::LoadRun(const LoadRunOptions& options, Workload& workload)
    : options_(options), workload_(workload), times_(options.arrivals) {
  if (!closed()) {
    PlanNext();
    return;
  }
  CHECK_GE(options.concurrency, 1);
  for (int32_t client = 0; client < options.concurrency; ++client) {
    if (std::optional<LoadRequest> first = workload_.Next()) Plan(std::move(*first), 0);
  }
}

void LoadRun::PlanNext() {
  const bool is_traced = options_.arrivals.kind == ArrivalKind::kTrace;
  int64_t at_us = is_traced ? 0 : times_.NextUs();
  workload_.set_at_us(at_us);
  std::optional<LoadRequest> next = workload_.Next();
  if (!next) return;
  if (is_traced) {
    const auto traced_us = static_cast<double>(next->trace_at_us.value_or(0));
    at_us = static_cast<int64_t>(traced_us / options_.trace_speed);
  }
  Plan(std::move(*next), at_us);
}

void LoadRun::Plan(LoadRequest request, int64_t at_us) {
  if (options_.duration_us > 0 && at_us >= options_.duration_us) return;
  planned_.push({.at_us = at_us, .place = planned_count_++, .request = std::move(request)});
}

std::optional<int64_t> LoadRun::NextDueUs() const {
  if (stopped_ || planned_.empty()) return std::nullopt;
  if (options_.max_requests > 0 && sent_ >= options_.max_requests) return std::nullopt;
  if (options_.concurrency > 0 && running_ >= options_.concurrency) return std::nullopt;
  return planned_.top().at_us;
}

std::optional<DueRequest> LoadRun::TakeDue(int64_t now_us) {
  const std::optional<int64_t> next_us = NextDueUs();
  if (!next_us || *next_us > now_us) return std::nullopt;
  DueRequest due = {.request = planned_.top().request, .intended_us = *next_us, .order = sent_};
  planned_.pop();
  ++sent_;
  ++running_;
  const int32_t prompt_tokens = due.request.clipped_prompt_tokens;
  const int32_t output_tokens = due.request.clipped_output_tokens;
  if (prompt_tokens + output_tokens > 0) ++clipped_.requests;
  clipped_.prompt_tokens += prompt_tokens;
  clipped_.output_tokens += output_tokens;
  const bool follows_an_answer = due.request.turn > 0;
  if (!closed() && !follows_an_answer) PlanNext();
  return due;
}

void LoadRun::OnEnd(const LoadRequest& request, const AnswerContent& answer, int64_t end_us) {
  CHECK_GT(running_, 0);
  --running_;
  if (stopped_) return;
  if (std::optional<FollowUp> next = workload_.After(request, answer)) {
    Plan(std::move(next->request), end_us + next->pause_us);
  } else if (closed()) {
    workload_.set_at_us(end_us);
    if (std::optional<LoadRequest> first = workload_.Next()) Plan(std::move(*first), end_us);
  }
}

ClipCounts LoadRun::clipped() const {
  ClipCounts counts = clipped_;
  counts.conversations = workload_.clipped_conversations();
  return counts;
}

void LoadRun::StopSending() { stopped_ = true; }

}  // namespace baton
