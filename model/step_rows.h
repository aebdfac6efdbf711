// How many of a step's rows are still computed: asked before each op, so that work which nobody
// wants any more stops between two ops.
//
// Rows are computed from the first to the last one of the last chunk that somebody wants
// (StepInput::wanted). They only ever become fewer, so those that are left went through every op
// before; and no row's result depends on how many there are (kernels/NUMERICS.md).
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "model/model_runner.h"

namespace baton {

// Position shifts of the chunk's runs other than 0, each once, rising. Every token of the chunk has
// a shifted query for each: a copy of its query, rotated for its position less the shift.
std::vector<int32_t> ShiftsOf(const StepChunk& chunk);

class StepRows {
 public:
  // So many, whoever wants them: what a graph is captured with.
  static StepRows Fixed(int64_t rows) { return StepRows({rows}, nullptr); }
  // The token rows of `input`, or its rows of logits. `input` outlives the result.
  static StepRows Tokens(const StepInput& input);
  static StepRows Logits(const StepInput& input);
  // The shifted queries of `input`. A step that has none never calls `wanted` for them.
  static StepRows ShiftedQueries(const StepInput& input);

  // Asks. 0: none is wanted any more.
  int64_t Count();

 private:
  StepRows(std::vector<int64_t> ends, const std::function<int32_t()>* wanted)
      : ends_(std::move(ends)), wanted_(wanted) {}

  std::vector<int64_t> ends_;  // of each chunk that is left, rising
  const std::function<int32_t()>* wanted_;
};

}  // namespace baton
