#include "cache/index/kv_event_follower.h"

#include <algorithm>

namespace baton {

void ApplyKvEvent(IndexedWorker worker, const KvEvent& event, GlobalIndex& index) {
  switch (event.kind) {
    case KvEvent::Kind::kStored:
      return index.Stored(worker, event.tier, event.parent, event.hashes);
    case KvEvent::Kind::kRemoved:
      return index.Removed(worker, event.tier, event.hashes);
    case KvEvent::Kind::kCleared:
      return index.Cleared(worker);
  }
}

KvEventFollower::KvEventFollower(IndexedWorker worker, Epoch epoch, GlobalIndex* index)
    : worker_(worker), epoch_(epoch), index_(index) {}

void KvEventFollower::Apply(std::span<const KvEvent> events) {
  for (size_t i = 0; i < events.size(); ++i) {
    if (i + 1 < events.size()) index_->PrefetchTable(events[i + 1].hashes);
    ApplyKvEvent(worker_, events[i], *index_);
  }
}

KvEventFollower::Outcome KvEventFollower::Batch(Epoch epoch, uint64_t sequence,
                                                std::span<const KvEvent> events) {
  if (epoch != epoch_ || sequence <= sequence_) return Outcome::kIgnored;
  if (!ready_ || sequence != sequence_ + 1) {
    ready_ = false;
    return Outcome::kNeedSnapshot;
  }
  Apply(events);
  sequence_ = sequence;
  return Outcome::kApplied;
}

KvEventFollower::Outcome KvEventFollower::Snapshot(Epoch epoch, uint64_t sequence,
                                                   std::span<const KvEvent> events, uint32_t part,
                                                   uint32_t parts) {
  if (epoch != epoch_ || sequence < sequence_) return Outcome::kIgnored;
  ready_ = false;
  if (part == 0) {
    index_->Cleared(worker_);
    open_ = {.sequence = sequence, .next_part = 0, .parts = parts};
  }
  const bool is_next = open_ && part == open_->next_part && parts == open_->parts && part < parts &&
                       sequence == open_->sequence;
  const bool is_all_stored = std::all_of(events.begin(), events.end(), [](const KvEvent& event) {
    return event.kind == KvEvent::Kind::kStored;
  });
  if (!is_next || !is_all_stored) {
    open_.reset();
    return Outcome::kNeedSnapshot;
  }
  Apply(events);
  if (++open_->next_part < parts) return Outcome::kApplied;
  open_.reset();
  sequence_ = sequence;
  ready_ = true;
  return Outcome::kApplied;
}

}  // namespace baton
