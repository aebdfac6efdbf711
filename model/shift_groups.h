// Groups of a chunk's rows that share a list of runs and shifted queries.
//
// A shifted query is a copy of a row's query, rotated for its position less a shift. All rows of an
// ordinary chunk are one group. Rows with places (StepChunk::places) are in one group as long as
// the runs that they lie in have the same shift, because their positions do not count that shift.
//
// Pure. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model_runner.h"

namespace baton {

struct ShiftGroup {
  int32_t first_row = 0;  // in the chunk
  int32_t rows = 0;
  int32_t runs = 0;       // that its rows see, of the chunk's first runs; 0: the chunk has none
  int32_t own_shift = 0;  // of the runs that its rows lie in; 0 for an ordinary chunk
  std::vector<int32_t> shifts = {};  // of its runs, less own_shift; without 0, each once, rising

  int64_t shifted_queries() const { return int64_t{rows} * static_cast<int64_t>(shifts.size()); }
};

// The groups of a chunk's rows, in order. REQUIRES: places, if there are any, name runs of the
// chunk.
std::vector<ShiftGroup> ShiftGroupsOf(const StepChunk& chunk);
// Number of shifted queries of all groups of a chunk.
int64_t ShiftedQueriesOf(const StepChunk& chunk);

}  // namespace baton
