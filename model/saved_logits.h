// Host copies of logit rows of a step on an asynchronous device. The next step overwrites the
// device's rows.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "model/model_runner.h"
#include "model/staged_array.h"

namespace baton {

class SavedLogits {
 public:
  // Enqueues copies of the rows of chunks with keeps_logits. ResourceExhausted: no memory, and
  // nothing was enqueued. REQUIRES: every earlier copy to this object has run.
  absl::Status Keep(const StepInput& input, const float* logits, int64_t vocabulary, Device& device,
                    Stream& stream);
  // Returns row `row` of the step's logits [vocabulary]; empty if it was not kept. REQUIRES: the
  // copies have run.
  std::span<const float> Row(int32_t row) const;

 private:
  StagedArray<float> logits_;   // [kept rows, vocabulary]
  std::vector<int32_t> place_;  // index of each row among the kept ones; -1: not kept
  int64_t vocabulary_ = 0;
};

}  // namespace baton
