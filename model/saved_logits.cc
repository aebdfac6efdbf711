#include "model/saved_logits.h"

#include "common/status_macros.h"

namespace baton {

absl::Status SavedLogits::Keep(const StepInput& input, const float* logits, int64_t vocabulary,
                               Device& device, Stream& stream) {
  int32_t kept = 0;
  place_.clear();
  for (const StepChunk& chunk : input.chunks) {
    for (int32_t i = 0; i < chunk.logit_rows; ++i) {
      place_.push_back(chunk.keeps_logits ? kept++ : -1);
    }
  }
  vocabulary_ = vocabulary;
  RETURN_IF_ERROR(logits_.Resize(kept * vocabulary, device, "logits of a step"));
  for (size_t row = 0; row < place_.size(); ++row) {
    if (place_[row] < 0) continue;
    stream.Copy(logits_.data() + place_[row] * vocabulary,
                logits + static_cast<int64_t>(row) * vocabulary,
                static_cast<size_t>(vocabulary) * sizeof(float));
  }
  return absl::OkStatus();
}

std::span<const float> SavedLogits::Row(int32_t row) const {
  if (row < 0 || row >= static_cast<int32_t>(place_.size()) || place_[row] < 0) return {};
  return logits_.values().subspan(static_cast<size_t>(place_[row] * vocabulary_),
                                  static_cast<size_t>(vocabulary_));
}

}  // namespace baton
