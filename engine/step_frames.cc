#include "engine/step_frames.h"

#include <algorithm>
#include <memory>

#include "common/check.h"

namespace baton {

void StepFrames::Describe(const SequenceFrame& frame, std::span<const BlockId> own_table,
                          int32_t begin, int32_t block_size, StepChunk& chunk) {
  const int32_t first = frame.slots(block_size);
  Input& input = inputs_.emplace_back();
  input.table.reserve(frame.blocks.size() + own_table.size());
  input.table.assign(frame.blocks.begin(), frame.blocks.end());
  input.table.insert(input.table.end(), own_table.begin(), own_table.end());
  input.runs.reserve(frame.runs.size() + 1);
  for (const FrameRun& run : frame.runs) {
    input.runs.push_back({.begin = run.begin,
                          .end = run.end,
                          .tile_origin = run.begin,
                          .position_shift = run.position_shift});
  }
  chunk.begin_slot = first + begin;
  chunk.begin_position = frame.begin_position + begin;
  input.runs.push_back({.begin = first,
                        .end = chunk.begin_slot + static_cast<int32_t>(chunk.tokens.size()),
                        .tile_origin = first});
  chunk.block_table = input.table;
  chunk.runs = input.runs;
}

int32_t ShiftsOf(const SequenceFrame& frame) {
  std::vector<int32_t> shifts;
  for (const FrameRun& run : frame.runs) {
    if (run.position_shift != 0) shifts.push_back(run.position_shift);
  }
  std::sort(shifts.begin(), shifts.end());
  return static_cast<int32_t>(std::unique(shifts.begin(), shifts.end()) - shifts.begin());
}

void FitShiftedQueries(const Scheduler& scheduler, int32_t most, SchedulerOutput& plan) {
  int32_t left = most;
  const auto fits = [&](ScheduledChunk& chunk) {
    if (!chunk.framed) return true;
    const int32_t shifts = ShiftsOf(*scheduler.frame(chunk.id));
    CHECK_LE(shifts, most) << "sequence " << chunk.id;
    if (shifts == 0) return true;
    const int32_t count = std::min(chunk.count, left / shifts);
    if (count < chunk.count) chunk.samples = false;
    plan.total_tokens -= chunk.count - count;
    chunk.count = count;
    left -= count * shifts;
    return count > 0;
  };
  std::erase_if(plan.chunks, [&](ScheduledChunk& chunk) { return !fits(chunk); });
}

}  // namespace baton
