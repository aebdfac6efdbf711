#include "scheduler/step_holds.h"

#include <algorithm>
#include <iterator>
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

void StepHolds::Hold(int64_t step, std::span<const BlockId> blocks, int32_t group) {
  CHECK(step > collected_ && step <= submitted_) << "step " << step << " is not in flight";
  Add(held_[static_cast<size_t>(step - collected_ - 1)], blocks, group);
}

void StepHolds::HoldForNext(std::span<const BlockId> blocks, int32_t group) {
  Add(for_next_, blocks, group);
}

bool StepHolds::holds_for_next() const {
  return std::any_of(for_next_.begin(), for_next_.end(),
                     [](const std::vector<BlockId>& blocks) { return !blocks.empty(); });
}

void StepHolds::ReleaseForNext() { Release(for_next_); }

void StepHolds::Add(GroupBlocks& to, std::span<const BlockId> blocks, int32_t group) {
  std::vector<BlockId>& held = to[group];
  const size_t before = held.size();
  std::copy_if(blocks.begin(), blocks.end(), std::back_inserter(held),
               [](BlockId block) { return block != kNoBlock; });
  const auto added = std::span<const BlockId>(held).subspan(before);
  cache_->HoldForStep(added, group);
  held_count_ += added.size();
}

void StepHolds::Release(GroupBlocks& held) {
  for (int32_t group = 0; group < cache_->groups(); ++group) {
    std::vector<BlockId>& blocks = held[group];
    if (blocks.empty()) continue;
    cache_->ReleaseStepHold(blocks, group);
    held_count_ -= blocks.size();
    blocks.clear();
  }
}

std::vector<BlockId> StepHolds::Held(int32_t group) const {
  std::vector<BlockId> all = for_next_[group];
  for (const GroupBlocks& held : held_) {
    all.insert(all.end(), held[group].begin(), held[group].end());
  }
  return all;
}

}  // namespace baton
