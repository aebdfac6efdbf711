#include "model/inline_runner.h"

#include <utility>

#include "common/check.h"

namespace baton {

absl::StatusOr<StepId> InlineRunner::Submit(const StepInput& input) {
  CHECK(collected_) << "step " << last_ << " is uncollected";
  for (const StepChunk& chunk : input.chunks) {
    CHECK(!chunk.token_from.has_value())
        << "an inline runner has no earlier step that could draw the token";
  }
  ++last_;
  collected_ = false;
  if (absl::Status ran = Run(input); ran.ok()) {
    result_ = StepResult{.drawn = draws_.Draw(input, [this](int32_t row) { return LogitsOf(row); }),
                         .changes = Changes()};
  } else {
    result_ = std::move(ran);
  }
  return last_;
}

absl::StatusOr<StepResult> InlineRunner::Collect(StepId step) {
  CHECK(!collected_ && step == last_) << "step " << step << " is not the oldest uncollected one";
  collected_ = true;
  return std::move(result_);
}

std::span<const float> InlineRunner::Logits(StepId step, int32_t row) const {
  CHECK(collected_ && step == last_) << "step " << step << " no longer has logits";
  return LogitsOf(row);
}

}  // namespace baton
