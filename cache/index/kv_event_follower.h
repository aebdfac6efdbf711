// A worker's KV events on their way into the fleet's index.
//
// Thread safety: belongs to the index's writer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "cache/index/global_index.h"
#include "cache/index/kv_event.h"
#include "common/strong_int.h"

namespace baton {

void ApplyKvEvent(IndexedWorker worker, const KvEvent& event, GlobalIndex& index);

// Keeps one incarnation of one worker in the index, as its numbered batches say. Batches count from
// 1 in each epoch. A worker starts with an empty cache, so a follower that hears an epoch from its
// first batch on needs nothing else; one that comes later, or missed a batch, needs a snapshot:
// stored events for all that the worker holds, and the number of the last batch that is in it.
//
// Invariant: while ready(), the index has of this worker exactly what batches 1 to sequence() said.
class KvEventFollower {
 public:
  enum class Outcome {
    kApplied,
    kIgnored,       // an old epoch, or a batch that was applied before
    kNeedSnapshot,  // a gap: nothing was applied, and nothing will be until a snapshot comes
  };

  // Follows from the beginning of `epoch`. `index` must outlive this.
  KvEventFollower(IndexedWorker worker, Epoch epoch, GlobalIndex* index);

  Outcome Batch(Epoch epoch, uint64_t sequence, std::span<const KvEvent> events);
  // Part `part` of the `parts` of a snapshot, which come in order; the first begins anew. Not
  // ready() until the last is in. kIgnored for another epoch, and for a snapshot older than what is
  // known; kNeedSnapshot when a part is missing, or holds anything but stored events.
  Outcome Snapshot(Epoch epoch, uint64_t sequence, std::span<const KvEvent> events,
                   uint32_t part = 0, uint32_t parts = 1);

  bool ready() const { return ready_; }
  uint64_t sequence() const { return sequence_; }  // of the last batch that is in the index

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
