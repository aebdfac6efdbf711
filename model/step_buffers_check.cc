// StepBuffers::Check: whether a step fits its chunks and the buffers.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "model/shift_groups.h"
#include "model/step_buffers.h"

namespace baton {
namespace {

absl::Status Exceeds(int64_t value, const char* what, int64_t limit) {
  return absl::InvalidArgumentError(
      absl::StrCat("a step has ", value, " ", what, ", the limit is ", limit));
}

}  // namespace

absl::Status StepBuffers::CheckRuns(const StepChunk& chunk) const {
  const int64_t end = int64_t{chunk.begin_slot} + static_cast<int64_t>(chunk.tokens.size());
  const int64_t slots = static_cast<int64_t>(chunk.block_table.size()) << block_size_log2_;
  for (const SlotRun& run : chunk.runs) {
    if (run.begin < 0 || run.begin > run.end || run.end > slots || run.tile_origin > run.begin) {
      return absl::InvalidArgumentError(
          absl::StrCat("a run of slots [", run.begin, ", ", run.end, ") with tile origin ",
                       run.tile_origin, " does not fit a sequence of ", slots, " slots"));
    }
  }
  if (chunk.runs.empty()) return absl::OkStatus();
  if (groups.size() > 1) {
    return absl::UnimplementedError(absl::StrCat("a chunk with ", chunk.runs.size(),
                                                 " runs: a model with sliding windows takes none"));
  }
  if (chunk.compares && limits_.max_compared_rows == 0) {
    return absl::UnimplementedError("this runner does not compare rows");
  }
  if (!chunk.places.empty()) return CheckPlaces(chunk);
  const SlotRun& last = chunk.runs.back();
  if (last.begin > chunk.begin_slot || last.end != end) {
    return absl::InvalidArgumentError(absl::StrCat("the last run has slots [", last.begin, ", ",
                                                   last.end, "); it must end with the chunk's [",
                                                   chunk.begin_slot, ", ", end, ")"));
  }
  return absl::OkStatus();
}

absl::Status StepBuffers::CheckPlaces(const StepChunk& chunk) {
  const size_t tokens = chunk.tokens.size();
  if (chunk.places.size() != tokens || chunk.positions.size() != tokens) {
    return absl::InvalidArgumentError(absl::StrCat(chunk.places.size(), " places and ",
                                                   chunk.positions.size(), " positions for ",
                                                   tokens, " tokens"));
  }
  int32_t before = -1;
  for (const RowPlace& place : chunk.places) {
    const bool known = place.run >= 0 && place.run < static_cast<int32_t>(chunk.runs.size());
    const bool inside = known && place.slot >= chunk.runs[place.run].begin &&
                        place.slot < chunk.runs[place.run].end;
    if (!inside || place.slot <= before) {
      return absl::InvalidArgumentError(
          absl::StrCat("a row has slot ", place.slot, " of run ", place.run, " of ",
                       chunk.runs.size(), "; it must be in that run and behind slot ", before));
    }
    before = place.slot;
  }
  return absl::OkStatus();
}

absl::Status StepBuffers::Check(const StepInput& input) const {
  int64_t extra_runs = 0;
  int64_t shifted_queries = 0;
  int64_t embeddings = 0;
  bool compares = false;
  for (const StepChunk& chunk : input.chunks) {
    if (compares && !chunk.compares) {
      return absl::InvalidArgumentError("a chunk that stores KV is behind one that compares");
    }
    compares = chunk.compares;
    const auto tokens = static_cast<int64_t>(chunk.tokens.size());
    if (chunk.segment != 0 || chunk.adapter != 0) {
      return absl::UnimplementedError(absl::StrCat("segment ", chunk.segment, ", adapter ",
                                                   chunk.adapter, ": only 0 is supported"));
    }
    if (!chunk.positions.empty() && static_cast<int64_t>(chunk.positions.size()) != tokens) {
      return absl::InvalidArgumentError(
          absl::StrCat(chunk.positions.size(), " positions for ", tokens, " tokens"));
    }
    if (!chunk.embeddings.empty()) {
      if (static_cast<int64_t>(chunk.embeddings.size()) != tokens * hidden_size_) {
        return absl::InvalidArgumentError(absl::StrCat(chunk.embeddings.size(),
                                                       " values of embeddings for ", tokens,
                                                       " tokens of ", hidden_size_, " values"));
      }
      embeddings += tokens;
    }
    RETURN_IF_ERROR(CheckRuns(chunk));
    if (chunk.runs.empty()) continue;
    --extra_runs;
    for (const ShiftGroup& group : ShiftGroupsOf(chunk)) {
      extra_runs += group.runs;
      shifted_queries += group.shifted_queries();
    }
  }
  if (extra_runs > limits_.max_extra_runs) {
    return Exceeds(extra_runs, "visible runs beyond one a chunk", limits_.max_extra_runs);
  }
  if (shifted_queries > limits_.max_shifted_queries) {
    return Exceeds(shifted_queries, "shifted queries", limits_.max_shifted_queries);
  }
  if (embeddings > limits_.max_embeddings) {
    return Exceeds(embeddings, "rows of embeddings", limits_.max_embeddings);
  }
  return absl::OkStatus();
}

}  // namespace baton
