// Collects cache changes into batches of KV events, in order. A change that continues the previous
// one joins its event. So the blocks of a prompt are one event, even if they arrive one by one.
//
// Thread safety: used by the cache's thread only.
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
  // Maximum size of a batch, except for a batch that a single event fills. REQUIRES: <=
  // kMaxKvEventBatchBytes.
  static constexpr size_t kBatchBytes = size_t{1} << 20;

  explicit KvEventBatcher(size_t batch_bytes = kBatchBytes);

  // `before` is the run before this one, nullopt at the start of a chain.
  void Stored(const std::optional<Hash128>& before, const Hash128& run,
              CacheTier tier = CacheTier::kDevice);
  void Removed(const Hash128& run, CacheTier tier = CacheTier::kDevice);
  void Cleared();  // every tier

  // Returns the changes since the last call, encoded (kv_event.h), oldest first. Empty if nothing
  // changed.
  std::vector<std::string> Take();

 private:
  void Begin(KvEvent event);
  // True if a run with this kind and tier may join the open event.
  bool MayJoin(KvEvent::Kind kind, CacheTier tier) const;
  void Add(const Hash128& run);
  void Close();

  const size_t batch_bytes_;
  std::vector<std::string> closed_;
  std::vector<KvEvent> open_;
  size_t open_bytes_ = 0;
};

}  // namespace baton
