// State machine for one reader's stream of KV events. It sends one message at a time, each after
// the previous one was written. If the feed no longer has the reader's next batch, it asks for a
// snapshot of the cache.
//
// The first message carries the number of the feed's last batch, so that the reader knows how far
// it has to catch up. For a slow reader at most one message and one snapshot are kept in memory.
//
// Pure: the caller sends messages and fetches snapshots. Worker processes and the simulation both
// use it.
//
// Thread safety: guarded by the owner's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "common/strong_int.h"
#include "engine/kv_event_cursor.h"
#include "engine/kv_event_feed.h"
#include "engine/request.h"

namespace baton {

class KvEventPump {
 public:
  // The reader has applied batches up to `sequence` of `epoch`. If `epoch` differs from `own`, the
  // worker has restarted and the reader starts over. `feed` must outlive this.
  KvEventPump(const KvEventFeed* feed, Epoch own, Epoch epoch, uint64_t sequence)
      : feed_(feed), cursor_(feed, epoch == own ? sequence : 0) {}

  struct Action {
    std::optional<KvEventCursor::Message> send;  // call OnSent once it is written
    bool ask_for_snapshot = false;               // call OnSnapshot with it
  };
  // Returns the first message.
  Action Start();
  // Call when the feed has a new batch.
  Action OnNews();
  Action OnSent();
  Action OnSnapshot(std::shared_ptr<const KvEventSnapshot> snapshot);

 private:
  const KvEventFeed* const feed_;
  KvEventCursor cursor_;
  bool sending_ = false;
  bool awaits_snapshot_ = false;
};

}  // namespace baton
