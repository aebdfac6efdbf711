// Cursor of one reader in a worker's KV events. It returns the feed's batches in order. If the feed
// no longer has the next batch, it returns a snapshot and then the batches after it.
//
// Invariant: a reader that applied every message from Next knows the content of batches 1 to
// sequence(). The exception is a reader between two parts of a snapshot.
//
// Thread safety: guarded by the owner's lock. Feed and cursor may be used by different threads.
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
    uint64_t sequence = 0;  // of the batch, or of the last batch in the snapshot
    uint32_t part = 0;
    uint32_t parts = 0;  // number of parts of the snapshot; 0: this is a batch
    std::shared_ptr<const std::string> events = nullptr;  // encoded (cache/index/kv_event.h)
  };

  // Starts after batch `sequence`. Starts from the beginning if the feed has not reached that
  // number: the reader is wrong. `feed` must outlive this.
  KvEventCursor(const KvEventFeed* feed, uint64_t sequence);

  // Returns the next message, or nothing if there is no new batch or needs_snapshot() is true.
  std::optional<Message> Next();
  // The feed has dropped the next batch. Next returns nothing until Take.
  bool needs_snapshot() const { return needs_snapshot_; }
  // Continues with a snapshot. REQUIRES: needs_snapshot(); the snapshot is from the same feed and
  // later than sequence().
  void Take(std::shared_ptr<const KvEventSnapshot> snapshot);
  uint64_t sequence() const { return sequence_; }

 private:
  Message NextPart();

  const KvEventFeed* const feed_;
  uint64_t sequence_ = 0;
  bool needs_snapshot_ = false;
  std::shared_ptr<const KvEventSnapshot> snapshot_;  // the one being read in parts; null: none
  size_t next_part_ = 0;                             // of snapshot_
};

}  // namespace baton
