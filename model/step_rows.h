// Row limits of a step: how many of its rows an op still has to compute. The device asks before
// each op, so work that no request wants any more stops between two ops.
//
// Rows are computed from the first one to the last one of the last wanted chunk
// (StepInput::wanted). The number of rows never increases, so the remaining rows went through every
// earlier op. The result of a row does not depend on the number of rows (kernels/NUMERICS.md).
//
// Thread safety: belongs to the thread that runs the step's ops. most() is safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "model/model_runner.h"

namespace baton {

class StepRows final : public RowLimit {
 public:
  StepRows() = default;  // no rows
  // A fixed number of rows, wanted or not. Graphs are captured with it.
  static StepRows Fixed(int64_t rows) { return StepRows({rows}, nullptr); }
  // Limits for the token rows of `input`, its logit rows, its draws and its shifted queries.
  // `wanted` is input.wanted or a copy of it. REQUIRES: `wanted` outlives the result.
  static StepRows Tokens(const StepInput& input, const std::function<int32_t()>& wanted);
  static StepRows Logits(const StepInput& input, const std::function<int32_t()>& wanted);
  static StepRows Draws(const StepInput& input, const std::function<int32_t()>& wanted);
  // Never calls `wanted` if the step has no shifted queries.
  static StepRows ShiftedQueries(const StepInput& input, const std::function<int32_t()>& wanted);
  // The same as Tokens and ShiftedQueries, without the chunks that compare.
  static StepRows StoredTokens(const StepInput& input, const std::function<int32_t()>& wanted);
  static StepRows StoredShiftedQueries(const StepInput& input,
                                       const std::function<int32_t()>& wanted);
  static StepRows Tokens(const StepInput& input) { return Tokens(input, input.wanted); }
  static StepRows Logits(const StepInput& input) { return Logits(input, input.wanted); }

  // Number of all rows, wanted or not.
  int64_t most() const { return most_; }
  // Asks `wanted` and returns the number of rows left. 0: no row is wanted any more.
  int64_t Count();
  int64_t Rows() override { return Count(); }
  // Number of chunks left at the last Count.
  int32_t chunks() const { return static_cast<int32_t>(ends_.size()); }

 private:
  StepRows(std::vector<int64_t> ends, const std::function<int32_t()>* wanted)
      : ends_(std::move(ends)), most_(ends_.empty() ? 0 : ends_.back()), wanted_(wanted) {}

  std::vector<int64_t> ends_;  // end of each chunk that is left, rising
  int64_t most_ = 0;
  const std::function<int32_t()>* wanted_ = nullptr;
};

}  // namespace baton
