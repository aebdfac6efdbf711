// Prompt chunks between the pool and host memory: chunks that fall asleep, sleep and are woken
// (cache/sleeping_chunks.h).
//
//   falling asleep: FallAsleep ─▶ copied out of the pool ─▶ Poll: a sleeper; its blocks are freed
//   waking:         Wake ─▶ StartWakes ─▶ copied into blocks of a part ─▶ Poll: Woken
//
// A chunk that falls asleep has left the chunk cache. Until its copy is complete, it can be taken
// back with its blocks (TakeBack), which costs nothing.
//
// A sleeper stays here while it is woken, and until the chunk cache has stored it again (Forget).
// So a chunk that only a request's own blocks had room for can be woken again.
//
// Rules:
//  1. Blocks that a copy reads or writes have a transfer's hold until the copy has ended, even if
//     the part or the request ends earlier.
//  2. A copy into blocks starts only when no step uses these blocks (StartWakes).
//  3. Chunks that fall asleep keep their blocks for a moment. Together they have at most half of
//     the blocks that the chunk cache may have, or they are one chunk. Further chunks that must
//     leave the chunk cache are lost.
//  4. A damaged sleeper is dropped. The part is then computed.
//
// Thread safety: engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "cache/chunk_cache.h"
#include "cache/kv_cache_manager.h"
#include "cache/sleeping_chunks.h"
#include "common/clock.h"
#include "common/strong_int.h"
#include "engine/chunk_mover.h"

namespace baton {

struct ChunkTierOptions {
  int64_t host_bytes = 0;          // limit of host memory; 0: no chunk sleeps
  int64_t bytes_per_block = 0;     // of the pool
  int32_t max_falling_blocks = 0;  // blocks of chunks that fall asleep; one chunk may have more
};

class ChunkTier {
 public:
  // All pointers must outlive this. `mover` may be null: then no chunk sleeps.
  ChunkTier(const ChunkTierOptions& options, KvCacheManager* cache, ChunkMover* mover,
            const Clock* clock);
  // REQUIRES: idle().
  ~ChunkTier();
  ChunkTier(const ChunkTier&) = delete;
  ChunkTier& operator=(const ChunkTier&) = delete;

  bool on() const { return mover_ != nullptr && options_.host_bytes > 0; }

  // Starts to copy a chunk that leaves the chunk cache. Returns false if it cannot sleep: no room,
  // or too many chunks fall asleep already.
  bool FallAsleep(const ChunkCache::Leaving& leaving);
  // Takes back a chunk that falls asleep: `store` gets its blocks, which have a transfer's hold,
  // and stores them in the chunk cache. Returns false if no such chunk falls asleep, or `store`
  // returned false.
  using StoreAgain = std::function<bool(int32_t position, std::span<const BlockId> blocks)>;
  bool TakeBack(const ChunkKey& key, std::span<const TokenId> tokens, const StoreAgain& store);

  // True if the chunk sleeps, or falls asleep.
  bool Has(const ChunkKey& key, std::span<const TokenId> tokens) const;
  // Returns the KV of a sleeper, if waking it is expected to take no longer than computing it; else
  // null. It cannot be evicted until the caller passes it to Wake or LeaveAsleep.
  std::shared_ptr<const PackedKv> ToWake(const ChunkKey& key, std::span<const TokenId> tokens);
  // Copies the KV into the blocks of a part, from StartWakes on.
  void Wake(const ChunkKey& key, std::shared_ptr<const PackedKv> kv, int32_t tokens,
            SequenceId part, std::span<const BlockId> blocks);
  void LeaveAsleep(const std::shared_ptr<const PackedKv>& kv) {
    sleepers_.Unpin(kv, /*woken=*/false);
  }
  // Starts the wakes whose blocks no step uses. Call it when all copies of blocks
  // (KvCacheManager::TakeCopies) have been made.
  void StartWakes();
  // A request has computed chunks: `tokens` took `us`. ToWake compares with it.
  void OnComputed(int64_t tokens, int64_t us);

  struct Woken {
    SequenceId part;
    bool whole = false;  // its KV is there
    int32_t tokens = 0;
    std::vector<BlockId> blocks;
    int64_t us = 0;  // time since Wake
  };
  // Handles copies that have ended. Returns the wakes among them.
  std::vector<Woken> Poll();

  // The chunk cache has the chunk again.
  void Forget(const ChunkKey& key);
  // Forgets every chunk that sleeps or falls asleep, or those of one namespace.
  void Clear(std::optional<CacheNamespace> only);
  // Cancels copies out of the pool; no further chunk falls asleep. The caller polls until idle().
  void Shutdown();

  SleepingChunkStats Stats() const { return sleepers_.Stats(); }
  std::vector<ChunkCache::EntryInfo> Entries() const { return sleepers_.Entries(clock_->NowUs()); }
  bool idle() const { return falling_.empty() && waking_.empty() && pending_.empty(); }
  // Appends the blocks that copies hold in the cache. A block appears once per hold.
  void AppendHeld(std::vector<BlockId>& held) const;
  absl::Status CheckInvariants() const { return sleepers_.CheckInvariants(); }

 private:
  struct Falling {
    SleepingChunks::Sleeper sleeper;  // without KV
    std::vector<BlockId> blocks;      // held in the cache
    int64_t reserved = 0;
    bool unwanted = false;  // taken back, or cleared
  };
  struct Waking {
    ChunkKey key;
    SequenceId part;
    int32_t tokens = 0;
    std::vector<BlockId> blocks;  // held in the cache
    std::shared_ptr<const PackedKv> kv;
    int64_t bytes = 0;
    int64_t since_us = 0;
  };

  bool IsWorthWaking(const PackedKv& kv, size_t tokens) const;
  void Drop(uint64_t job, Falling& falling);
  void EndFall(Falling falling, const ChunkMover::Done& done);
  Woken EndWake(Waking waking, const ChunkMover::Done& done);

  const ChunkTierOptions options_;
  KvCacheManager* const cache_;
  ChunkMover* const mover_;
  const Clock* const clock_;
  SleepingChunks sleepers_;
  std::map<uint64_t, Falling> falling_;                   // by job
  absl::flat_hash_map<ChunkKey, uint64_t> falling_keys_;  // wanted ones
  std::map<uint64_t, Waking> waking_;                     // by job
  std::vector<Waking> pending_;                           // for StartWakes
  int32_t falling_blocks_ = 0;
  int64_t waking_bytes_ = 0;  // of pending_ and waking_
  uint64_t last_job_ = 0;
  bool ends_ = false;  // Shutdown was called
  // Measured, averaged over the last few.
  std::optional<double> compute_us_per_token_;
  double wake_us_per_byte_;
};

}  // namespace baton
