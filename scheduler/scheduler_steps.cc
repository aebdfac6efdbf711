// Steps in flight of Scheduler: submitted, collected, committed.
#include <vector>

#include "scheduler/scheduler.h"

namespace baton {

void Scheduler::StepSubmitted(const SchedulerOutput& output) {
  const int64_t step = step_holds_.Submit();
  for (const ScheduledChunk& chunk : output.chunks) {
    Sequence& sequence = Get(chunk.id);
    sequence.in_flight += chunk.count;
    sequence.last_step = step;
    if (chunk.draws_next) ++sequence.pending;
  }
  blocked_at_.reset();
}

void Scheduler::StepCollected(const SchedulerOutput& output) {
  step_holds_.Collect();
  for (const ScheduledChunk& chunk : output.chunks) {
    const auto it = sequences_.find(chunk.id);
    if (it != sequences_.end()) it->second->in_flight -= chunk.count;
  }
  blocked_at_.reset();
}

void Scheduler::CommitStep(const SchedulerOutput& output) {
  for (const ScheduledChunk& chunk : output.chunks) {
    const auto it = sequences_.find(chunk.id);
    if (it == sequences_.end() || it->second->phase != SequencePhase::kRunning) continue;
    if (Committed(*it->second) != chunk.begin) continue;
    if (it->second->repairs) {
      it->second->committed_rows += chunk.count;
      CommittedPart(*it->second);
      continue;
    }
    const auto tokens = std::span<const TokenId>(it->second->spec.tokens);
    cache_->Commit(chunk.id, UnitsFromTokens(tokens.subspan(chunk.begin, chunk.count)));
    if (it->second->is_part) {
      CommittedPart(*it->second);
      continue;
    }
    if (options_.insert_chunks) InsertCommitted(*it->second);
    cache_->FreeBehindWindows(chunk.id);
  }
}

// A step in flight still uses the old block table. So it must hold the blocks that are swapped for
// the tree's.
void Scheduler::InsertCommitted(const Sequence& sequence) {
  const SequenceId id = sequence.spec.id;
  const int32_t block_size = cache_->options().block_size;
  const int32_t begin = cache_->shared_tokens(id) / block_size;
  const int32_t end = cache_->committed(id) / block_size;
  if (!InFlight(sequence) || begin >= end) return cache_->InsertCommitted(id);
  StepHolds before(cache_);
  std::vector<std::vector<BlockId>> own;
  for (int32_t group = 0; group < cache_->groups(); ++group) {
    const auto table = cache_->BlockTable(id, group).subspan(begin, end - begin);
    own.emplace_back(table.begin(), table.end());
    before.HoldForNext(own.back(), group);
  }
  cache_->InsertCommitted(id);
  for (int32_t group = 0; group < cache_->groups(); ++group) {
    const auto now = cache_->BlockTable(id, group).subspan(begin, end - begin);
    std::vector<BlockId> swapped;
    for (size_t i = 0; i < now.size(); ++i) {
      if (own[group][i] != now[i]) swapped.push_back(own[group][i]);
    }
    step_holds_.Hold(sequence.last_step, swapped, group);
  }
}

}  // namespace baton
