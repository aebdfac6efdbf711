#include "model/shift_groups.h"

#include <algorithm>

namespace baton {
namespace {

void FindShifts(std::span<const SlotRun> runs, ShiftGroup& group) {
  std::vector<int32_t>& shifts = group.shifts;
  for (const SlotRun& run : runs.first(static_cast<size_t>(group.runs))) {
    const int32_t shift = run.position_shift - group.own_shift;
    if (shift != 0) shifts.push_back(shift);
  }
  std::sort(shifts.begin(), shifts.end());
  shifts.erase(std::unique(shifts.begin(), shifts.end()), shifts.end());
}

}  // namespace

std::vector<ShiftGroup> ShiftGroupsOf(const StepChunk& chunk) {
  std::vector<ShiftGroup> groups;
  if (chunk.places.empty()) {
    groups.push_back({.rows = static_cast<int32_t>(chunk.tokens.size()),
                      .runs = static_cast<int32_t>(chunk.runs.size())});
  }
  for (const RowPlace& place : chunk.places) {
    const int32_t shift = chunk.runs[place.run].position_shift;
    if (groups.empty() || groups.back().own_shift != shift) {
      const int32_t first = groups.empty() ? 0 : groups.back().first_row + groups.back().rows;
      groups.push_back({.first_row = first, .own_shift = shift});
    }
    ++groups.back().rows;
    groups.back().runs = std::max(groups.back().runs, place.run + 1);
  }
  for (ShiftGroup& group : groups) FindShifts(chunk.runs, group);
  return groups;
}

int64_t ShiftedQueriesOf(const StepChunk& chunk) {
  if (chunk.runs.empty()) return 0;
  int64_t queries = 0;
  for (const ShiftGroup& group : ShiftGroupsOf(chunk)) queries += group.shifted_queries();
  return queries;
}

}  // namespace baton
