// Prompt chunks that sleep in host memory: which there are, how much memory they take, and which
// one goes when the memory is full.
//
// A sleeping chunk was in the chunk cache (chunk_cache.h). Its KV was copied out of the pool, and
// its blocks were freed. A request that needs it copies the KV back into blocks of the pool. It
// then leaves this object when the chunk cache has it again.
//
// Invariants:
//  1. The bytes of all sleepers and of all reservations together never exceed the limit. Memory of
//     a copy that is being woken counts until Unpin, even if the sleeper was cleared meanwhile.
//  2. A pinned sleeper is not evicted.
//
// The sleepers are published as units of the host tier (KvCacheManager::ChunkStored).
//
// Thread safety: used by the engine thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "cache/chunk_cache.h"
#include "cache/kv_cache_manager.h"
#include "cache/packed_kv.h"
#include "common/strong_int.h"

namespace baton {

struct SleepingChunkStats {
  int32_t entries = 0;
  int64_t bytes = 0;  // of host memory, with copies in progress
  int64_t limit_bytes = 0;
  int64_t sleeps = 0;   // chunks that fell asleep
  int64_t wakes = 0;    // chunks that were copied back
  int64_t damaged = 0;  // chunks whose checksum was wrong when they were woken
  int64_t dropped = 0;  // chunks that left for room
};

class SleepingChunks {
 public:
  struct Sleeper {
    ChunkKey key;
    std::vector<TokenId> tokens;
    int32_t position = 0;
    int64_t uses = 0;         // in the chunk cache, before it slept
    int64_t stored_us = 0;    // when the chunk cache stored it
    int64_t last_use_us = 0;  // when a request used it last, here or in the chunk cache
    std::shared_ptr<const PackedKv> kv;
  };

  // `limit_bytes` 0: nothing ever sleeps. `cache` publishes and outlives this.
  SleepingChunks(int64_t limit_bytes, KvCacheManager* cache)
      : limit_bytes_(limit_bytes), cache_(cache) {}
  ~SleepingChunks();

  // Reserves memory for a copy of a chunk that was last used at `last_use_us`. Evicts the least
  // recently used sleepers if needed, but none used later than that. Returns false, with nothing
  // evicted, if that does not make enough room.
  bool Reserve(int64_t bytes, int64_t last_use_us);
  void Unreserve(int64_t bytes) { reserved_ -= bytes; }
  // Adds a sleeper, which takes its memory from a reservation of `reserved` bytes. Replaces one
  // with the same key. REQUIRES: the KV has at most `reserved` bytes (CHECK).
  void Add(Sleeper sleeper, int64_t reserved);

  // Returns the sleeper with this key and these tokens, or null. Valid until the next change.
  const Sleeper* Find(const ChunkKey& key, std::span<const TokenId> tokens) const;
  // Counts a use, and returns the KV. It is not evicted until Unpin. REQUIRES: Find finds it.
  std::shared_ptr<const PackedKv> Pin(const ChunkKey& key, int64_t now_us);
  // Ends a pin. The caller has dropped its pointer. `woken`: the KV was copied back and was whole.
  void Unpin(const std::shared_ptr<const PackedKv>& kv, bool woken);
  // Removes the sleeper with this KV, because its checksum is wrong.
  void Damaged(const ChunkKey& key, const std::shared_ptr<const PackedKv>& kv);
  // Removes the sleeper with this key. Does nothing without one.
  void Forget(const ChunkKey& key);
  // Forgets every sleeper, or those of one namespace.
  void Clear(std::optional<CacheNamespace> only = {});

  SleepingChunkStats Stats() const;
  // The least recently used first.
  std::vector<ChunkCache::EntryInfo> Entries(int64_t now_us) const;
  // Recounts the memory. Internal names the difference.
  absl::Status CheckInvariants() const;

 private:
  using Use = std::pair<int64_t, int64_t>;  // when, and a number that makes it unique
  struct Entry {
    Sleeper sleeper;
    int64_t bytes = 0;
    Use last_use;
  };
  struct Pinned {
    int32_t pins = 0;
    int64_t bytes = 0;       // of the KV
    bool forgotten = false;  // no sleeper has it any more
  };

  void Remove(const ChunkKey& key);
  int64_t used() const { return bytes_ + forgotten_bytes_ + reserved_; }
  bool IsPinned(const Entry& entry) const { return pinned_.contains(entry.sleeper.kv.get()); }

  const int64_t limit_bytes_;
  KvCacheManager* const cache_;
  absl::flat_hash_map<ChunkKey, Entry> entries_;
  std::map<Use, ChunkKey> by_use_;
  absl::flat_hash_map<const PackedKv*, Pinned> pinned_;
  int64_t bytes_ = 0;            // of the entries
  int64_t forgotten_bytes_ = 0;  // of pinned KV without an entry
  int64_t reserved_ = 0;
  int64_t uses_ = 0;
  SleepingChunkStats stats_;  // only the counters
};

}  // namespace baton
