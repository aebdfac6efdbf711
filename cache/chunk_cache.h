// Keeps the KV of prompt chunks, so that later requests reuse it at any position.
//
// An entry has the tokens of one part of a chunked prompt, and the blocks with their KV. The key
// says what else the KV depends on. An entry may be:
//  - a chunk, or a piece of a long one, with all its blocks
//  - a system part. Its leading full blocks belong to the prefix tree (`first_block` of them); the
//    entry has the rest, at most a part-full last block. Without a prefix tree it has all blocks.
//
// Blocks are taken from the pool of the full-attention group and have a chunk hold
// (KvCacheManager::HoldForChunk). Two caps bound the cache: a share of the pool's blocks and a
// number of entries. Nothing is reserved. At a cap, Store evicts the least recently used entries
// without a reference. If that is not enough, it stores nothing: the chunk is bypassed, and its
// blocks belong to its requests alone. In contiguous mode every chunk is bypassed.
//
// A chunk need not be lost when it leaves. The owner of the cache may take it (set_demotion), and
// keep a copy in host memory (sleeping_chunks.h). The cache offers it every chunk that leaves for a
// cap or a smaller pool, and every cold one (SleepCold). A chunk is cold if it was stored at least
// `sleep_after_us` ago and has fewer than `sleep_uses` uses since that long ago. A chunk that
// leaves because a sequence needs its blocks at once (EvictOne) is lost: a copy would keep them.
// System parts never sleep.
//
// Invariants:
//  1. used_blocks = the blocks of all entries; each has exactly one chunk hold.
//  2. An entry with references keeps its blocks. Clearing or shrinking only hides it: no later
//     Find returns it, and its blocks are released with the last reference.
//  3. Store keeps both caps, hidden entries included. Only a pool that shrank may exceed the
//     budget, as long as referenced entries fill it.
//
// The pool's KV events report the entries that Find can return (KvCacheManager::ChunkStored).
//
// Pure: the clock is passed in, and only ages depend on it. Thread safety: used by the engine
// thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "cache/cache_key.h"
#include "cache/index/indexed_worker.h"
#include "cache/kv_cache_manager.h"
#include "common/clock.h"
#include "common/strong_int.h"

namespace baton {

// What the KV of a part depends on: a cryptographic hash of the namespace, of all parts that its
// rows see, and of its own tokens. Keys chain: each hashes the key of the part before it.
struct ChunkKey {
  CacheNamespace cache_namespace;
  Hash128 hash;

  bool operator==(const ChunkKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const ChunkKey& key) {
    return H::combine(std::move(h), key.cache_namespace, key.hash);
  }
};

enum class ChunkKind : uint8_t {
  kSystem,  // the system part: sees itself
  kChunk,   // sees what `before` names, and itself; an entry of the chunk cache
  kPiece,   // a later piece of a long chunk: `before` is the piece before it
};

// Key of a part. `before` is the key of the part that comes before it in its own frame: nullopt for
// a system part and for a chunk that sees itself alone. A chunk behind an empty system part has the
// key of that empty part before it, or nullopt: both see the same, and callers must choose one.
ChunkKey MakeChunkKey(CacheNamespace cache_namespace, ChunkKind kind,
                      const std::optional<ChunkKey>& before, std::span<const TokenId> tokens);

struct ChunkCacheOptions {
  double share = 0.15;           // of the pool's blocks, in [0, 1]; 0 switches the cache off
  int32_t max_entries = 500;     // at least 1
  const Clock* clock = nullptr;  // for ages; must outlive the cache. Null: ages are 0
  // When a chunk is cold. Both at least 0. With 0 uses, none ever is.
  int64_t sleep_after_us = 3'600'000'000;
  int32_t sleep_uses = 5;
};

struct ChunkCacheStats {
  int32_t budget_blocks = 0;  // at the pool's present size
  int32_t used_blocks = 0;
  int32_t referenced_blocks = 0;  // of them, blocks of entries with references
  int32_t entries = 0;            // those that Find can return
  int32_t max_entries = 0;
  int64_t lookups = 0;  // calls of Find
  int64_t hits = 0;
  int64_t bypasses = 0;   // calls of Store that stored nothing
  int64_t evictions = 0;  // entries that left for room: at a cap, for EvictOne, for a smaller pool
  int64_t misses() const { return lookups - hits; }
};

class ChunkCache {
 private:
  struct Entry;

 public:
  // A counted use of an entry. It keeps the entry's blocks. Movable; empty after a move. REQUIRES:
  // destroyed before its cache.
  class Reference {
   public:
    Reference() = default;
    Reference(Reference&& other) noexcept;
    Reference& operator=(Reference&& other) noexcept;
    ~Reference() { Drop(); }
    void Drop();
    explicit operator bool() const { return entry_ != nullptr; }
    // REQUIRES: not empty.
    std::span<const BlockId> blocks() const;
    int32_t first_block() const;  // number of blocks()[0] among the blocks of the part
    int32_t tokens() const;       // of the part
    int32_t position() const;     // that the keys of the part's first token were computed at

   private:
    friend class ChunkCache;
    Reference(ChunkCache* cache, Entry* entry);
    ChunkCache* cache_ = nullptr;
    Entry* entry_ = nullptr;
  };

  // REQUIRES: options valid (CHECK); `cache` outlives this object.
  ChunkCache(const ChunkCacheOptions& options, KvCacheManager* cache);
  // REQUIRES: no reference is left (CHECK).
  ~ChunkCache();
  ChunkCache(const ChunkCache&) = delete;
  ChunkCache& operator=(const ChunkCache&) = delete;

  // Returns a reference to the entry with this key and these tokens, or an empty one. Counts a
  // lookup, and a use of the entry.
  Reference Find(const ChunkKey& key, std::span<const TokenId> tokens);
  // What Find would return, without counting.
  struct Peeked {
    int32_t first_block = 0;
    int32_t blocks = 0;
    bool referenced = false;
    std::span<const BlockId> ids = {};  // of the blocks; valid until the cache changes
  };
  std::optional<Peeked> Peek(const ChunkKey& key, std::span<const TokenId> tokens) const;
  // Counts a use, without a lookup or a reference. Does nothing without such an entry.
  void Touch(const ChunkKey& key, std::span<const TokenId> tokens);

  struct Part {
    ChunkKey key;
    std::span<const TokenId> tokens;
    int32_t position = 0;
    int32_t first_block = 0;
    std::span<const BlockId> blocks;  // from first_block on; the caller holds them
    bool sleeps = true;               // false: it is never offered for demotion (a system part)
  };
  // Stores a part whose KV is written. May evict entries without references. Returns an empty
  // reference, and counts a bypass, if it has no room, an entry has the key already, or a block is
  // above the pool's limit (the pool shrank since it was taken). REQUIRES:
  // blocks is not empty; no block is in the prefix tree or in an entry (CHECK).
  Reference Store(const Part& part);

  // An unreferenced entry that leaves the cache.
  struct Leaving {
    ChunkKey key;
    std::span<const TokenId> tokens;
    int32_t position = 0;
    std::span<const BlockId> blocks;  // of all its tokens
    int64_t uses = 0;
    int64_t stored_us = 0;
    int64_t last_use_us = 0;
  };
  // Sets the function that may take leaving entries. It is called before the chunk holds are
  // released, so it can add holds of its own. It must not call the cache. It returns false if it
  // does not take the entry. Null: no entry is offered.
  void set_demotion(std::function<bool(const Leaving&)> demote) { demote_ = std::move(demote); }
  // Offers the cold entries, the least recently used first, until one is not taken. Those that are
  // taken leave the cache. Looks at the entries at most once in kSleepRoundUs.
  void SleepCold();
  static constexpr int64_t kSleepRoundUs = 50'000;

  // Evicts the least recently used entry without a reference. Returns how many blocks it had; 0 if
  // there is none. Blocks with other holds stay in use.
  int32_t EvictOne();
  int32_t evictable_blocks() const { return stats_.used_blocks - stats_.referenced_blocks; }
  // Forgets every entry, or those of one namespace. Returns how many blocks were released at once.
  int32_t Clear(std::optional<CacheNamespace> only = {});
  // Call it after the pool's size has changed. Entries with blocks above the new limit go, and
  // enough others to meet the new budget.
  void PoolResized();

  ChunkCacheStats Stats() const;
  // One entry that Find can return, for `baton chunks`.
  struct EntryInfo {
    ChunkKey key;
    int32_t tokens = 0;
    int32_t blocks = 0;
    int32_t position = 0;
    int32_t references = 0;
    int64_t uses = 0;     // hits; storing it is none
    int64_t age_us = 0;   // since it was stored
    int64_t idle_us = 0;  // since it was stored or found last
    CacheTier tier = CacheTier::kDevice;
    int64_t host_bytes = 0;  // of a sleeping chunk; it has no blocks
  };
  std::vector<EntryInfo> Entries() const;  // the least recently used first
  // The blocks of all entries, also of hidden ones.
  std::vector<BlockId> HeldBlocks() const;
  // Recounts the invariants, and compares the chunk holds of the pool. Internal names the first
  // difference. O(blocks).
  absl::Status CheckInvariants() const;

 private:
  struct Entry {
    ChunkKey key;
    std::vector<TokenId> tokens;
    std::vector<BlockId> blocks;
    int32_t first_block = 0;
    int32_t position = 0;
    int32_t references = 0;
    int64_t uses = 0;
    int64_t last_use = 0;  // number of the last use, unique
    int64_t stored_us = 0;
    int64_t last_use_us = 0;
    bool hidden = false;  // no longer in entries_
    bool sleeps = false;
    // Times of the last `sleep_uses` uses; use number n is at n modulo `sleep_uses`. Empty without
    // a demotion.
    std::vector<int64_t> recent_uses;
  };

  int64_t NowUs() const { return options_.clock == nullptr ? 0 : options_.clock->NowUs(); }
  int32_t BudgetBlocks() const;
  bool ReachesBehindPool(std::span<const BlockId> blocks) const;
  void Use(Entry& entry);
  Entry* Lookup(const ChunkKey& key, std::span<const TokenId> tokens) const;
  bool IsCold(const Entry& entry, int64_t now_us) const;
  bool MakeRoom(int32_t blocks);
  bool Demote(const Entry& entry);
  void EvictForRoom(Entry& entry);
  void Unreference(Entry& entry);
  void Hide(Entry& entry);
  void Destroy(Entry& entry);

  const ChunkCacheOptions options_;
  KvCacheManager* const cache_;
  absl::flat_hash_map<ChunkKey, Entry*> entries_;  // those that Find can return
  // All entries, also hidden ones.
  absl::flat_hash_map<const Entry*, std::unique_ptr<Entry>> owned_;
  std::map<int64_t, Entry*> by_use_;  // entries without references, by last_use
  std::function<bool(const Leaving&)> demote_;
  int64_t next_sleep_round_us_ = 0;
  int64_t uses_ = 0;
  ChunkCacheStats stats_;
};

}  // namespace baton
