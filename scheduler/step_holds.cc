#include "scheduler/step_holds.h"

#include <utility>

#include "common/check.h"

namespace baton {

StepHolds::~StepHolds() {
  ReleaseForNext();
  while (in_flight() > 0) Collect();
}

int64_t StepHolds::Submit() {
  held_.push_back(std::exchange(for_next_, {}));
  return ++submitted_;
}

void StepHolds::Collect() {
  CHECK_GT(in_flight(), 0) << "no step is in flight";
  ++collected_;
  Release(held_.front());
  held_.pop_front();
}

void StepHolds::Hold(int64_t step, std::span<const BlockId> blocks) {
  CHECK(step > collected_ && step <= submitted_) << "step " << step << " is not in flight";
  cache_->HoldForStep(blocks);
  std::vector<BlockId>& held = held_[static_cast<size_t>(step - collected_ - 1)];
  held.insert(held.end(), blocks.begin(), blocks.end());
  held_count_ += blocks.size();
}

void StepHolds::HoldForNext(std::span<const BlockId> blocks) {
  cache_->HoldForStep(blocks);
  for_next_.insert(for_next_.end(), blocks.begin(), blocks.end());
  held_count_ += blocks.size();
}

void StepHolds::ReleaseForNext() { Release(for_next_); }

void StepHolds::Release(std::vector<BlockId>& blocks) {
  if (blocks.empty()) return;
  cache_->ReleaseStepHold(blocks);
  held_count_ -= blocks.size();
  blocks.clear();
}

std::vector<BlockId> StepHolds::Held() const {
  std::vector<BlockId> all = for_next_;
  for (const std::vector<BlockId>& held : held_) all.insert(all.end(), held.begin(), held.end());
  return all;
}

}  // namespace baton
