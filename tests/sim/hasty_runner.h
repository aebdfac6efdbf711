// Device for the mutant "committed at submit": its steps end at once, but their KV writes land
// later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "model/model_runner.h"

namespace baton {

class HastyRunner final : public ModelRunner {
 public:
  // REQUIRES: `device` is inline. It and `pool` must outlive this.
  HastyRunner(ModelRunner* device, std::span<std::byte> pool,
              std::function<void(std::function<void()>)> later)
      : device_(device), pool_(pool), later_(std::move(later)) {}

  absl::StatusOr<StepId> Submit(const StepInput& input) override {
    while (!late_.empty()) WriteOldest();
    const std::vector<std::byte> before(pool_.begin(), pool_.end());
    absl::StatusOr<StepId> step = device_->Submit(input);
    std::vector<std::pair<size_t, std::byte>>& writes = late_.emplace_back();
    for (size_t i = 0; i < pool_.size(); ++i) {
      if (pool_[i] != before[i]) writes.emplace_back(i, std::exchange(pool_[i], before[i]));
    }
    const int64_t number = ++steps_;
    later_([this, number] {
      while (written_ < number) WriteOldest();
    });
    return step;
  }
  absl::StatusOr<StepResult> Collect(StepId step) override { return device_->Collect(step); }
  absl::Status CopyBlocks(std::span<const BlockCopy> copies) override {
    while (!late_.empty()) WriteOldest();
    return device_->CopyBlocks(copies);
  }
  std::span<const float> Logits(StepId step, int32_t row) const override {
    return device_->Logits(step, row);
  }
  bool compares_rows() const override { return device_->compares_rows(); }

 private:
  void WriteOldest() {
    for (const auto& [offset, byte] : late_.front()) pool_[offset] = byte;
    late_.pop_front();
    ++written_;
  }

  ModelRunner* const device_;
  const std::span<std::byte> pool_;
  const std::function<void(std::function<void()>)> later_;
  std::deque<std::vector<std::pair<size_t, std::byte>>> late_;  // by step, oldest first
  int64_t steps_ = 0;
  int64_t written_ = 0;
};

}  // namespace baton
