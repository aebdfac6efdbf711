// One reader's place in a worker's KV events: what it is told next, which are the feed's batches
// one after the other, or, where the feed has gone on without it, a snapshot and the batches behind
// that.
//
// Invariant: who has taken in all that Next gave knows what batches 1 to sequence() said, unless a
// snapshot is on its way in parts.
//
// Thread safety: the owner's lock. Feed and cursor may be used by different threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/kv_event_feed.h"

namespace baton {

class KvEventCursor {
 public:
  struct Message {
    uint64_t sequence = 0;  // of the batch; of the last one that is in the snapshot
    uint32_t part = 0;
    uint32_t parts = 0;                                   // of a snapshot; 0: a batch
    std::shared_ptr<const std::string> events = nullptr;  // encoded (cache/index/kv_event.h)
  };

  // Begins behind batch `sequence`; at the beginning when the feed never gave that number: it is a
  // reader's mistake. `feed` must outlive this.
  KvEventCursor(const KvEventFeed* feed, uint64_t sequence);

  // Nothing: there is no news, or needs_snapshot().
  std::optional<Message> Next();
  // The next batch is gone, and Next gives nothing until Take.
  bool needs_snapshot() const { return needs_snapshot_; }
  // REQUIRES: needs_snapshot(), and the snapshot is of the same feed and later than sequence().
  void Take(std::shared_ptr<const KvEventSnapshot> snapshot);
  uint64_t sequence() const { return sequence_; }

 private:
  Message NextPart();

  const KvEventFeed* const feed_;
  uint64_t sequence_ = 0;
  bool needs_snapshot_ = false;
  std::shared_ptr<const KvEventSnapshot> snapshot_;  // being told; null: none
  size_t next_part_ = 0;                             // of it
};

}  // namespace baton
