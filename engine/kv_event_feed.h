// A worker's KV events on their way from the engine's loop to whoever follows them: the loop
// publishes and never waits; readers ask for batches by number, at their own pace.
//
// What is kept is bounded (KvEventLog). A reader that falls behind finds a batch gone and needs a
// snapshot (Engine::SnapshotKvEvents); nobody waits for it.
//
// Thread safety: every function, from any thread; Publish and Snapshot from one.
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

// All that a worker's cache holds: batches of stored events alone.
struct KvEventSnapshot {
  uint64_t sequence = 0;           // of the last batch that is in it
  std::vector<std::string> parts;  // at least one, encoded
};

class KvEventFeed {
 public:
  // 4 MiB are a quarter of a million runs of 16 tokens.
  static constexpr size_t kKeptBytes = size_t{4} << 20;

  explicit KvEventFeed(size_t kept_bytes = kKeptBytes) : log_(kept_bytes) {}

  // Numbers and keeps the batches, then tells the readers.
  void Publish(std::vector<std::string> batches);

  uint64_t last() const;
  // Null when the batch is no longer, or not yet, there.
  KvEventLog::Batch Find(uint64_t sequence) const;

  // All that the cache holds at last(): what `make` gives, unless a reader still has the same.
  // REQUIRES: called by the publisher, nothing happened in the cache since it published.
  std::shared_ptr<const KvEventSnapshot> Snapshot(
      const std::function<std::vector<std::string>()>& make);

  // `on_news` is called on the publisher's thread after each Publish, and must not block. It may
  // still be called once while Unsubscribe runs and after.
  uint64_t Subscribe(std::function<void()> on_news);
  void Unsubscribe(uint64_t subscription);

 private:
  mutable std::mutex mutex_;
  KvEventLog log_;
  std::weak_ptr<const KvEventSnapshot> latest_snapshot_;  // the publisher's
  uint64_t next_subscription_ = 1;
  std::map<uint64_t, std::shared_ptr<const std::function<void()>>> readers_;
};

}  // namespace baton
