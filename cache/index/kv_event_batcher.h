// Gathers what happens in a cache into batches of KV events, in the order in which it happened: a
// change that continues the one before joins its event, so that a prompt's blocks are one event
// however they came.
//
// Thread safety: belongs to the cache's thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cache/cache_key.h"
#include "cache/index/kv_event.h"

namespace baton {

class KvEventBatcher {
 public:
  // Every batch but one that a single event fills is smaller. REQUIRES: <= kMaxKvEventBatchBytes.
  static constexpr size_t kBatchBytes = size_t{1} << 20;

  explicit KvEventBatcher(size_t batch_bytes = kBatchBytes);

  // On the device tier. `before` is the run before this one, none at a chain's begin.
  void Stored(const std::optional<Hash128>& before, const Hash128& run);
  void Removed(const Hash128& run);
  void Cleared();

  // What was gathered since the last call, encoded (kv_event.h), oldest first; none when nothing
  // happened.
  std::vector<std::string> Take();

 private:
  void Begin(KvEvent event);
  void Add(const Hash128& run);
  void Close();

  const size_t batch_bytes_;
  std::vector<std::string> closed_;
  std::vector<KvEvent> open_;
  size_t open_bytes_ = 0;
};

}  // namespace baton
