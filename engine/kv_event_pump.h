// What one reader's stream of KV events does next: one message after the other, each when the one
// before was written, and a snapshot of the cache where the feed has gone on without the reader.
//
// The first message names the feed's last batch, so that a reader knows how far it has to follow.
// What waits for a slow reader is one message, and the snapshot that it is at.
//
// Pure: the caller sends and asks for the snapshot. Worker processes and the simulation both run
// this.
//
// Thread safety: the owner's lock.
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
  // The reader is behind batch `sequence` of `epoch`; what it knows of another epoch than `own` is
  // worth nothing. `feed` must outlive this.
  KvEventPump(const KvEventFeed* feed, Epoch own, Epoch epoch, uint64_t sequence)
      : feed_(feed), cursor_(feed, epoch == own ? sequence : 0) {}

  struct Action {
    std::optional<KvEventCursor::Message> send;  // then OnSent, once it is written
    bool ask_for_snapshot = false;               // then OnSnapshot
  };
  // The first message.
  Action Start();
  // The feed has news.
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
