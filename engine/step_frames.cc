#include "engine/step_frames.h"

#include <algorithm>
#include <memory>

#include "common/check.h"
#include "model/shift_groups.h"

namespace baton {
namespace {

std::vector<SlotRun> RunsOf(const SequenceFrame& frame) {
  std::vector<SlotRun> runs;
  runs.reserve(frame.runs.size() + 1);
  for (const FrameRun& run : frame.runs) {
    runs.push_back({.begin = run.begin,
                    .end = run.end,
                    .tile_origin = run.begin,
                    .position_shift = run.position_shift});
  }
  return runs;
}

// Number of rows that fit of a repair's rows [begin, begin + count). Takes what they need off
// `left`.
int32_t RowsThatFit(const SequenceFrame& frame, int32_t begin, int32_t count, FrameLimits& left) {
  const std::vector<SlotRun> runs = RunsOf(frame);
  std::vector<RowPlace> places;
  for (int32_t row = begin; row < begin + count; ++row) {
    places.push_back({.slot = frame.rows[row].slot, .run = frame.rows[row].run});
  }
  StepChunk chunk;
  chunk.runs = runs;
  chunk.places = places;
  int32_t fit = 0;
  for (const ShiftGroup& group : ShiftGroupsOf(chunk)) {
    const auto shifts = static_cast<int32_t>(group.shifts.size());
    const int32_t rows =
        shifts == 0 ? group.rows : std::min(group.rows, left.shifted_queries / shifts);
    if (group.runs > left.repair_runs) break;
    fit += rows;
    left.repair_runs -= group.runs;
    left.shifted_queries -= rows * shifts;
    if (rows < group.rows) break;
  }
  return fit;
}

}  // namespace

void StepFrames::Describe(const SequenceFrame& frame, std::span<const BlockId> own_table,
                          int32_t begin, int32_t block_size, StepChunk& chunk) {
  const int32_t first = frame.slots(block_size);
  Input& input = inputs_.emplace_back();
  input.table.reserve(frame.blocks.size() + own_table.size());
  input.table.assign(frame.blocks.begin(), frame.blocks.end());
  input.runs = RunsOf(frame);
  if (!frame.rows.empty()) return DescribeRows(frame, begin, input, chunk);
  input.table.insert(input.table.end(), own_table.begin(), own_table.end());
  chunk.begin_slot = first + begin;
  chunk.begin_position = frame.begin_position + begin;
  input.runs.push_back({.begin = first,
                        .end = chunk.begin_slot + static_cast<int32_t>(chunk.tokens.size()),
                        .tile_origin = first});
  chunk.block_table = input.table;
  chunk.runs = input.runs;
}

void StepFrames::DescribeRows(const SequenceFrame& frame, int32_t begin, Input& input,
                              StepChunk& chunk) {
  for (const FrameRow& row : std::span(frame.rows).subspan(begin, chunk.tokens.size())) {
    input.places.push_back({.slot = row.slot, .run = row.run});
    RowPosition position;
    position.fill(row.position);
    input.positions.push_back(position);
  }
  chunk.begin_slot = input.places.front().slot;
  chunk.begin_position = frame.rows[begin].position;
  chunk.block_table = input.table;
  chunk.runs = input.runs;
  chunk.places = input.places;
  chunk.positions = input.positions;
  chunk.compares = frame.compares;
}

int32_t ShiftsOf(const SequenceFrame& frame) {
  std::vector<int32_t> shifts;
  for (const FrameRun& run : frame.runs) {
    if (run.position_shift != 0) shifts.push_back(run.position_shift);
  }
  std::sort(shifts.begin(), shifts.end());
  return static_cast<int32_t>(std::unique(shifts.begin(), shifts.end()) - shifts.begin());
}

void FitFrames(const Scheduler& scheduler, const FrameLimits& limits, SchedulerOutput& plan) {
  FrameLimits left = limits;
  const auto fits = [&](ScheduledChunk& chunk) {
    if (!chunk.framed) return true;
    const SequenceFrame& frame = *scheduler.frame(chunk.id);
    int32_t count = chunk.count;
    if (!frame.rows.empty()) {
      count = RowsThatFit(frame, chunk.begin, chunk.count, left);
    } else if (const int32_t shifts = ShiftsOf(frame); shifts > 0) {
      CHECK_LE(shifts, limits.shifted_queries) << "sequence " << chunk.id;
      count = std::min(chunk.count, left.shifted_queries / shifts);
      left.shifted_queries -= count * shifts;
    }
    if (count < chunk.count) chunk.samples = false;
    plan.total_tokens -= chunk.count - count;
    chunk.count = count;
    return count > 0;
  };
  std::erase_if(plan.chunks, [&](ScheduledChunk& chunk) { return !fits(chunk); });
}

void PutComparisonsLast(const Scheduler& scheduler, SchedulerOutput& plan) {
  const auto stores = [&](const ScheduledChunk& chunk) {
    return !chunk.framed || !scheduler.frame(chunk.id)->compares;
  };
  if (std::all_of(plan.chunks.begin(), plan.chunks.end(), stores)) return;
  std::stable_partition(plan.chunks.begin(), plan.chunks.end(), stores);
}

}  // namespace baton
