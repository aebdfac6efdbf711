#include "model/step_rows.h"

#include <algorithm>

#include "model/shift_groups.h"

namespace baton {
namespace {

template <typename RowsOf>
std::vector<int64_t> Ends(const StepInput& input, const RowsOf& rows_of) {
  std::vector<int64_t> ends;
  ends.reserve(input.chunks.size());
  int64_t end = 0;
  for (const StepChunk& chunk : input.chunks) ends.push_back(end += rows_of(chunk));
  return ends;
}

}  // namespace

StepRows StepRows::Tokens(const StepInput& input, const std::function<int32_t()>& wanted) {
  return StepRows(
      Ends(input, [](const StepChunk& chunk) { return static_cast<int64_t>(chunk.tokens.size()); }),
      &wanted);
}

StepRows StepRows::StoredTokens(const StepInput& input, const std::function<int32_t()>& wanted) {
  return StepRows(Ends(input,
                       [](const StepChunk& chunk) {
                         return chunk.compares ? 0 : static_cast<int64_t>(chunk.tokens.size());
                       }),
                  &wanted);
}

StepRows StepRows::Logits(const StepInput& input, const std::function<int32_t()>& wanted) {
  return StepRows(Ends(input, [](const StepChunk& chunk) { return int64_t{chunk.logit_rows}; }),
                  &wanted);
}

StepRows StepRows::Draws(const StepInput& input, const std::function<int32_t()>& wanted) {
  return StepRows(
      Ends(input, [](const StepChunk& chunk) { return static_cast<int64_t>(chunk.draws.size()); }),
      &wanted);
}

StepRows StepRows::ShiftedQueries(const StepInput& input, const std::function<int32_t()>& wanted) {
  StepRows rows(Ends(input, ShiftedQueriesOf), &wanted);
  return rows.ends_.empty() || rows.ends_.back() == 0 ? Fixed(0) : rows;
}

StepRows StepRows::StoredShiftedQueries(const StepInput& input,
                                        const std::function<int32_t()>& wanted) {
  StepRows rows(
      Ends(input,
           [](const StepChunk& chunk) { return chunk.compares ? 0 : ShiftedQueriesOf(chunk); }),
      &wanted);
  return rows.ends_.empty() || rows.ends_.back() == 0 ? Fixed(0) : rows;
}

int64_t StepRows::Count() {
  if (wanted_ != nullptr && *wanted_) {
    const auto wanted = static_cast<size_t>((*wanted_)());
    ends_.resize(std::min(ends_.size(), wanted));
  }
  return ends_.empty() ? 0 : ends_.back();
}

}  // namespace baton
