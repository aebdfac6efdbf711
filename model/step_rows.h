// How many of a step's rows are still computed: asked before each op, so that work which nobody
// wants any more stops between two ops.
//
// Rows are computed from the first to the last one of the last chunk that somebody wants
// (StepInput::wanted). They only ever become fewer, so those that are left went through every op
// before; and no row's result depends on how many there are (kernels/NUMERICS.md).
//
// Thread safety: belongs to the thread that runs the step's ops, but for most().
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "model/model_runner.h"

namespace baton {

// Position shifts of the chunk's runs other than 0, each once, rising. Every token of the chunk has
// a shifted query for each: a copy of its query, rotated for its position less the shift.
std::vector<int32_t> ShiftsOf(const StepChunk& chunk);

class StepRows final : public RowLimit {
 public:
  StepRows() = default;  // none
  // So many, wanted or not: what a graph is captured with.
  static StepRows Fixed(int64_t rows) { return StepRows({rows}, nullptr); }
  // The token rows of `input`, its rows of logits, its draws, or its shifted queries. `wanted`,
  // which is input.wanted or a copy of it, outlives the result.
  static StepRows Tokens(const StepInput& input, const std::function<int32_t()>& wanted);
  static StepRows Logits(const StepInput& input, const std::function<int32_t()>& wanted);
  static StepRows Draws(const StepInput& input, const std::function<int32_t()>& wanted);
  // A step that has no shifted queries never calls `wanted` for them.
  static StepRows ShiftedQueries(const StepInput& input, const std::function<int32_t()>& wanted);
  static StepRows Tokens(const StepInput& input) { return Tokens(input, input.wanted); }
  static StepRows Logits(const StepInput& input) { return Logits(input, input.wanted); }

  // All of them, wanted or not.
  int64_t most() const { return most_; }
  // Asks. 0: none is wanted any more.
  int64_t Count();
  int64_t Rows() override { return Count(); }
  // Chunks that were left when Count last asked.
  int32_t chunks() const { return static_cast<int32_t>(ends_.size()); }

 private:
  StepRows(std::vector<int64_t> ends, const std::function<int32_t()>* wanted)
      : ends_(std::move(ends)), most_(ends_.empty() ? 0 : ends_.back()), wanted_(wanted) {}

  std::vector<int64_t> ends_;  // of each chunk that is left, rising
  int64_t most_ = 0;
  const std::function<int32_t()>* wanted_ = nullptr;
};

}  // namespace baton
