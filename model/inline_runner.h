// Base class of runners whose device runs a step inside Submit. The host makes the draws.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/host_draws.h"
#include "model/model_runner.h"

namespace baton {

class InlineRunner : public ModelRunner {
 public:
  absl::StatusOr<StepId> Submit(const StepInput& input) final;
  absl::StatusOr<StepResult> Collect(StepId step) final;
  std::span<const float> Logits(StepId step, int32_t row) const final;

 protected:
  // Runs a whole step. Internal: the device failed. Cancelled: no chunk is wanted any more.
  virtual absl::Status Run(const StepInput& input) = 0;
  // Like ModelRunner::Logits, for the last Run.
  virtual std::span<const float> LogitsOf(int32_t row) const = 0;
  // StepResult::changes of the last Run.
  virtual std::vector<float> Changes() const { return {}; }

 private:
  StepId last_{0};
  bool collected_ = true;
  absl::StatusOr<StepResult> result_ = StepResult();
  HostDraws draws_;
};

}  // namespace baton
