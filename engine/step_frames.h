// Frames in a step: turns the chunks of framed sequences (cache/sequence_frame.h) into inputs of
// the model, and keeps a step within the runner's limits of shifted queries and of runs.
//
// Thread safety: engine thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <vector>

#include "cache/sequence_frame.h"
#include "common/strong_int.h"
#include "model/model_runner.h"
#include "scheduler/scheduler.h"

namespace baton {

// Tables and runs of the framed chunks of one step.
class StepFrames {
 public:
  void Clear() { inputs_.clear(); }
  // Sets slots, positions, table and runs of a chunk that computes slots from `begin` on of a
  // sequence with this frame, or rows from `begin` on of a repair. Uses chunk.tokens. The chunk
  // refers to this object.
  void Describe(const SequenceFrame& frame, std::span<const BlockId> own_table, int32_t begin,
                int32_t block_size, StepChunk& chunk);

 private:
  struct Input {
    std::vector<BlockId> table;
    std::vector<SlotRun> runs;
    std::vector<RowPlace> places;
    std::vector<RowPosition> positions;
  };
  static void DescribeRows(const SequenceFrame& frame, int32_t begin, Input& input,
                           StepChunk& chunk);
  std::deque<Input> inputs_;  // adding one moves no other
};

// Number of shifted queries of each token that sees this frame.
int32_t ShiftsOf(const SequenceFrame& frame);

// Limits of a step. Each of them allows at least one row of every request.
struct FrameLimits {
  int32_t shifted_queries = std::numeric_limits<int32_t>::max();
  // Runs of all repairs. Their rows share a list of runs only as far as they have equal shifts.
  int32_t repair_runs = std::numeric_limits<int32_t>::max();
};

// Shortens or drops chunks of a plan that is not submitted yet, so that the step keeps the limits.
// The first chunks have precedence, and the others are planned again. REQUIRES: no frame has more
// shifts or runs than the limits allow.
void FitFrames(const Scheduler& scheduler, const FrameLimits& limits, SchedulerOutput& plan);
// Moves chunks that compare behind all others. The order stays the same otherwise.
void PutComparisonsLast(const Scheduler& scheduler, SchedulerOutput& plan);

}  // namespace baton
