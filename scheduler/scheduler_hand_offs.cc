// Scheduler's side of hand-offs: sequences whose KV comes from a peer.
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "scheduler/scheduler.h"

namespace baton {

absl::Status Scheduler::AddWaitingForKv(SequenceSpec spec) {
  RETURN_IF_ERROR(CheckCanEverFit(spec));
  if (part_source_ != nullptr) EvictChunksForHandOff(spec);
  RETURN_IF_ERROR(CheckRoomForHandOff(spec));
  const SequenceId id = spec.id;
  const Order order{.priority = spec.priority, .arrival = arrivals_++};
  const Sequence& sequence = Remember(std::move(spec), SequencePhase::kWaitingForKv, order);
  if (absl::Status status = BeginHandOff(sequence); !status.ok()) {
    sequences_.erase(id);
    return status;
  }
  ++waiting_for_kv_;
  promised_forks_ += sequence.spec.forks;
  return absl::OkStatus();
}

void Scheduler::KvArrived(SequenceId id, int32_t committed) {
  Sequence& sequence = Get(id);
  CHECK(sequence.phase == SequencePhase::kWaitingForKv)
      << "sequence " << id << " does not wait for KV";
  CHECK_LE(committed, sequence.known());
  const int32_t before = cache_->committed(id);
  committed = cache_->WholeBoundary(id, committed, sequence.known());
  if (committed > before) {
    cache_->Commit(
        id, UnitsFromTokens(std::span(sequence.spec.tokens).subspan(before, committed - before)));
    if (options_.insert_chunks) cache_->InsertCommitted(id);
  }
  cache_->FreeBehindWindows(id);
  if (sequence.spec.part_blocks > 0) TakeFrame(sequence);
  --waiting_for_kv_;
  sequence.phase = SequencePhase::kRunning;
  running_.emplace(sequence.order, &sequence);
  blocked_at_.reset();
}

void Scheduler::AdmitHandOffs(SchedulerOutput& output) {
  // Blocks that a preemption in this step freed belong to the running sequences.
  while (output.preempted.empty() && !waiting_.empty()) {
    Sequence& head = *waiting_.begin()->second;
    if (!head.spec.awaits_kv || CanNeverBegin(head)) return;
    if (part_source_ != nullptr) EvictChunksForHead();
    if (!HeadHasRoom(head.spec)) return;
    const bool taken = TakeBlocks(head, /*imports=*/true).ok();
    if (!taken && !NothingFreesBlocks()) return;
    head.spec.awaits_kv = false;
    --queued_hand_offs_;
    // A window needs more blocks to import than to compute chunk by chunk. If even the empty pool
    // has too few, the prompt is computed here, as if it had never been a hand-off.
    if (!taken) return;
    waiting_.erase(head.order);
    head.phase = SequencePhase::kWaitingForKv;
    ++waiting_for_kv_;
    promised_forks_ += head.spec.forks;
    output.awaiting_kv.push_back(head.spec.id);
  }
}

}  // namespace baton
