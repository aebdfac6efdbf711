// Rows of a step's logits on the host, for a step on an asynchronous device: the next step
// overwrites the device's.
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
  // Enqueues copies of the rows whose chunks keep their logits. ResourceExhausted: no memory,
  // nothing was enqueued. REQUIRES: no copy to this is still to run.
  absl::Status Keep(const StepInput& input, const float* logits, int64_t vocabulary, Device& device,
                    Stream& stream);
  // Row `row` of the step's logits [vocabulary]; empty: it was not kept. REQUIRES: the copies have
  // run.
  std::span<const float> Row(int32_t row) const;

 private:
  StagedArray<float> logits_;   // [kept rows, vocabulary]
  std::vector<int32_t> place_;  // of each row among those kept; -1: not kept
  int64_t vocabulary_ = 0;
};

}  // namespace baton
