// Frames in a step: turns the chunks of framed sequences (cache/sequence_frame.h) into inputs of
// the model, and keeps a step within the runner's limit of shifted queries.
//
// Thread safety: engine thread only.
#pragma once

#include <cstdint>
#include <deque>
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
  // sequence with this frame. Uses chunk.tokens. The chunk refers to this object.
  void Describe(const SequenceFrame& frame, std::span<const BlockId> own_table, int32_t begin,
                int32_t block_size, StepChunk& chunk);

 private:
  struct Input {
    std::vector<BlockId> table;
    std::vector<SlotRun> runs;
  };
  std::deque<Input> inputs_;  // adding one moves no other
};

// Number of shifted queries of each token that sees this frame.
int32_t ShiftsOf(const SequenceFrame& frame);

// Shortens or drops chunks of a plan that is not submitted yet, so that the step has at most `most`
// shifted queries. The first chunks have precedence, and the others are planned again. REQUIRES:
// no frame has more than `most` shifts.
void FitShiftedQueries(const Scheduler& scheduler, int32_t most, SchedulerOutput& plan);

}  // namespace baton
