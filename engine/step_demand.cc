#include "engine/step_demand.h"

#include <utility>

namespace baton {

StepDemand::StepDemand(std::vector<Chunk> chunks, const PendingCancellations* pending,
                       const Clock* clock)
    : chunks_(std::move(chunks)),
      pending_cancellations_(pending),
      clock_(clock),
      wanted_(static_cast<int32_t>(chunks_.size())) {}

absl::Status StepDemand::Look(const Chunk& chunk) const {
  if (pending_cancellations_ != nullptr && pending_cancellations_->Contains(chunk.request)) {
    return absl::CancelledError("the request was cancelled");
  }
  if (chunk.deadline_us != 0 && chunk.deadline_us <= clock_->NowUs()) {
    return absl::DeadlineExceededError("the request's deadline has passed");
  }
  return absl::OkStatus();
}

int32_t StepDemand::Update() {
  if (wanted_ == 0) return 0;
  const uint64_t additions =
      pending_cancellations_ == nullptr ? 0 : pending_cancellations_->additions();
  const int64_t deadline_us = chunks_[wanted_ - 1].deadline_us;
  const bool in_time = deadline_us == 0 || clock_->NowUs() < deadline_us;
  if (seen_additions_ == additions && in_time) return wanted_;
  seen_additions_ = additions;
  for (; wanted_ > 0; --wanted_) {
    absl::Status why = Look(chunks_[wanted_ - 1]);
    if (why.ok()) break;
    why_.push_back(std::move(why));
  }
  return wanted_;
}

absl::Status StepDemand::WhyUnwanted(int32_t chunk) const {
  if (chunk < wanted_) return Look(chunks_[chunk]);
  return why_[chunks_.size() - 1 - chunk];
}

}  // namespace baton
