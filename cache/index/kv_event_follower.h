// Applies a worker's KV events to the fleet's index.
//
// Thread safety: used by the index's writer only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "cache/index/global_index.h"
#include "cache/index/kv_event.h"
#include "common/strong_int.h"

namespace baton {

void ApplyKvEvent(IndexedWorker worker, const KvEvent& event, GlobalIndex& index);

// Mirrors one incarnation of one worker in the index from its numbered batches. Numbers start at 1
// in each epoch. A worker starts with an empty cache. So a follower that reads an epoch from its
// first batch on needs nothing else. A follower that joins later or missed a batch needs a
// snapshot. That is the stored events for everything that the worker holds, and the number of the
// last batch that it includes.
//
// Invariant: while ready(), the index has exactly the result of this worker's batches 1 to
// sequence().
class KvEventFollower {
 public:
  enum class Outcome {
    kApplied,
    kIgnored,       // an old epoch, or a batch that was applied before
    kNeedSnapshot,  // a gap: nothing was or will be applied until a snapshot arrives
  };

  // Follows from the start of `epoch`. REQUIRES: `index` outlives this object.
  KvEventFollower(IndexedWorker worker, Epoch epoch, GlobalIndex* index);

  Outcome Batch(Epoch epoch, uint64_t sequence, std::span<const KvEvent> events);
  // Applies part `part` of a snapshot of `parts` parts. Parts arrive in order, and part 0 starts
  // the snapshot. ready() is false until the last part was applied. kIgnored for another epoch, and
  // for a snapshot older than the current state. kNeedSnapshot if a part is missing or has other
  // events than stored.
  Outcome Snapshot(Epoch epoch, uint64_t sequence, std::span<const KvEvent> events,
                   uint32_t part = 0, uint32_t parts = 1);

  bool ready() const { return ready_; }
  uint64_t sequence() const { return sequence_; }  // of the last batch in the index

 private:
  struct OpenSnapshot {
    uint64_t sequence;
    uint32_t next_part;
    uint32_t parts;
  };
  void Apply(std::span<const KvEvent> events);

  IndexedWorker worker_;
  Epoch epoch_;
  GlobalIndex* index_;
  uint64_t sequence_ = 0;
  bool ready_ = true;
  std::optional<OpenSnapshot> open_;
};

}  // namespace baton
