// Feed of a worker's KV events, between the engine loop and its readers. The loop publishes
// numbered batches and never waits. Readers fetch batches by number at their own pace.
//
// The feed keeps a bounded number of bytes (KvEventLog). A reader that falls too far behind finds
// its next batch gone and needs a snapshot (Engine::SnapshotKvEvents).
//
// Thread safety: every function may be called from any thread; Publish and Snapshot from one thread
// only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cache/index/kv_event_log.h"

namespace baton {

// Content of a worker's prefix cache, as batches that contain only stored events.
struct KvEventSnapshot {
  uint64_t sequence = 0;           // of the last batch that it includes
  std::vector<std::string> parts;  // at least one, encoded
};

class KvEventFeed {
 public:
  // 4 MiB hold about 250,000 runs of 16 tokens.
  static constexpr size_t kKeptBytes = size_t{4} << 20;

  explicit KvEventFeed(size_t kept_bytes = kKeptBytes) : log_(kept_bytes) {}

  // Numbers and stores the batches, then calls the subscribers.
  void Publish(std::vector<std::string> batches);

  uint64_t last() const;
  // Null if the batch is dropped or not yet published.
  KvEventLog::Batch Find(uint64_t sequence) const;

  // Returns a snapshot of the cache at last(). Calls `make` only if no reader still holds a
  // snapshot of that state. REQUIRES: the publisher calls it; the cache has not changed since the
  // last Publish.
  std::shared_ptr<const KvEventSnapshot> Snapshot(
      const std::function<std::vector<std::string>()>& make);

  // `on_news` runs on the publisher's thread after each Publish and must not block. It may run once
  // more during or after Unsubscribe.
  uint64_t Subscribe(std::function<void()> on_news);
  void Unsubscribe(uint64_t subscription);

 private:
  mutable std::mutex mutex_;
  KvEventLog log_;
  std::weak_ptr<const KvEventSnapshot> latest_snapshot_;  // used by the publisher only
  uint64_t next_subscription_ = 1;
  std::map<uint64_t, std::shared_ptr<const std::function<void()>>> readers_;
};

}  // namespace baton
