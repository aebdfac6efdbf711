// The life of a sequence's KV: match → reserve → commit → insert → release.
//
// A sequence begins with the longest cached prefix of its units (locked in the prefix tree),
// reserves blocks as it grows, commits tokens once their KV is written, may insert committed full
// blocks after every chunk (its lock then moves to the new node), and ends through Release: one
// exit for finish, stop, cancel, deadline and peer death.
//
// Invariants:
//  1. committed <= reserved capacity; only committed tokens are ever inserted, and only in full
//     blocks.
//  2. The shared prefix (matched, then inserted) is read-only and covered by the sequence's lock;
//     blocks behind it belong to the sequence alone.
//  3. A match ends at a block boundary at least one token before the end of the known units.
//  4. Cached blocks that no sequence or transfer uses are evictable; Reserve evicts them before it
//     fails.
//
// Kinds: radix (prefix cache on) and none. Contiguous mode (`paged` false) gives a sequence one run
// of blocks at Begin, sized for its largest length, and excludes the prefix cache: what paging
// saves, and what it must equal bit for bit.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/block_allocator.h"
#include "cache/cache_key.h"
#include "cache/radix_tree.h"
#include "common/clock.h"
#include "common/strong_int.h"

namespace baton {

struct KvCacheOptions {
  int32_t num_blocks =
      0;  // without the scratch block, which is the pool's last and not managed here
  int32_t block_size = 16;
  bool prefix_cache = true;
  bool paged = true;              // false excludes prefix_cache
  int32_t min_prefix_tokens = 0;  // a shorter match counts as none
  bool record_trace = false;      // keep an allocation trace for `inspect` (bounded)
};

struct KvCacheStats {
  BlockAllocator::Accounting blocks;
  int32_t evictable = 0;  // cached and unlocked
  int64_t lookups = 0;    // Begin calls
  int64_t hits = 0;       // with a non-empty match
  int64_t lookup_tokens = 0;
  int64_t hit_tokens = 0;
  int64_t evicted_blocks = 0;
  int64_t radix_nodes = 0;
  // Slots reserved but not committed over slots reserved, of live sequences (internal
  // fragmentation).
  int64_t reserved_slots = 0;
  int64_t committed_slots = 0;
};

// One line of the allocation trace: what a sequence took or gave at which length, and what was free
// after.
struct AllocationEvent {
  enum class Kind : uint8_t { kMatch, kReserve, kInsert, kEvict, kRelease };
  int64_t time_us;
  Kind kind;
  SequenceId sequence;
  int32_t tokens;  // committed tokens, or tokens matched
  int32_t blocks;  // how many
  int32_t free_after;
};
inline constexpr size_t kTraceEvents = 4096;

class KvCacheManager {
 public:
  // REQUIRES: options valid (num_blocks >= 1, block_size a power of two in [1,128], not
  // prefix_cache && !paged).
  KvCacheManager(const KvCacheOptions& options, const Clock* clock);
  // Live sequences are released; REQUIRES: no transfer hold is left.
  ~KvCacheManager();
  KvCacheManager(const KvCacheManager&) = delete;
  KvCacheManager& operator=(const KvCacheManager&) = delete;

  // Starts a sequence: matches `units` (all known units of the sequence, prompt and, after a
  // preemption, generated ones) and locks the match. Returns the number of matched tokens, already
  // committed. In contiguous mode reserves the whole run for max_tokens: ResourceExhausted when
  // there is none. REQUIRES: id is new; max_tokens >= units.size().
  absl::StatusOr<int32_t> Begin(SequenceId id, CacheNamespace cache_namespace,
                                std::span<const CacheUnit> units, int32_t max_tokens);

  // Makes room for `tokens` slots in total, evicting as needed. ResourceExhausted, with both
  // numbers and nothing taken, when the pool cannot give them.
  absl::Status Reserve(SequenceId id, int32_t tokens);

  // Slots [committed, tokens) now hold KV of `units` (the units of just those slots). REQUIRES:
  // reserved.
  void Commit(SequenceId id, std::span<const CacheUnit> units);

  // Puts committed full blocks into the prefix tree and moves the sequence's lock there; blocks the
  // tree already had are swapped for the tree's and the sequence's own freed. Changes the block
  // table, so it is called between steps only: no step may be running over the old one. A transfer
  // that reads a swapped block has its own hold on it, and both copies hold the same bytes. O(1)
  // while no further block is full.
  void InsertCommitted(SequenceId id);

  // Drops tokens behind `tokens` (speculation); frees whole blocks behind (a contiguous run stays).
  // REQUIRES: tokens >= shared_tokens(id): blocks in the tree are read-only.
  void Truncate(SequenceId id, int32_t tokens);

  // The one exit. With `keep`, committed full blocks stay cached; without, only those that were
  // inserted before do. Blocks that a transfer holds stay until that ends.
  void Release(SequenceId id, bool keep);

  bool Contains(SequenceId id) const;
  std::span<const BlockId> BlockTable(
      SequenceId id) const;  // valid until the next call on this manager
  int32_t committed(SequenceId id) const;
  int32_t capacity(SequenceId id) const;       // slots reserved
  int32_t matched(SequenceId id) const;        // tokens found at Begin
  int32_t shared_tokens(SequenceId id) const;  // tokens in blocks of the prefix tree

  // A transfer's own hold on blocks: outlives the sequence.
  void HoldForTransfer(std::span<const BlockId> blocks);
  void ReleaseTransferHold(std::span<const BlockId> blocks);

  // How many blocks a new sequence could get: free + evictable.
  int32_t available_blocks() const;
  int32_t blocks_in_transfer() const;
  int32_t BlocksFor(int32_t tokens) const;
  // What Begin with these units and Reserve of them all would take out of available_blocks: blocks
  // to allocate, and cached ones that the match would lock. Without effect.
  int32_t BlocksToAdmit(CacheNamespace cache_namespace, std::span<const CacheUnit> units,
                        int32_t max_tokens) const;
  // Longest cached prefix, in tokens, without locking or counting it.
  int32_t PeekMatch(CacheNamespace cache_namespace, std::span<const CacheUnit> units) const;

  // Drops every unlocked cached block. Returns how many.
  int32_t ClearCache();
  KvCacheStats Stats() const;
  // The latest events, oldest first: at least the last kTraceEvents of them, at most twice as many.
  const std::vector<AllocationEvent>& trace() const { return trace_; }
  absl::Status CheckConservation() const;
  const KvCacheOptions& options() const { return options_; }

 private:
  struct SequenceKv {
    CacheNamespace cache_namespace;
    int32_t matched = 0;
    int32_t committed = 0;
    int32_t shared_blocks = 0;  // leading blocks that are the tree's, under `lock`
    std::vector<BlockId> table;
    std::vector<CacheUnit> private_units;  // committed ones behind the shared blocks
    RadixLock lock;
  };
  SequenceKv& Get(SequenceId id);
  const SequenceKv& Get(SequenceId id) const;
  int32_t MaxMatchBlocks(std::span<const CacheUnit> units) const;
  int32_t MinMatchBlocks() const { return BlocksFor(options_.min_prefix_tokens); }
  absl::Status BeginRun(SequenceKv& kv, int32_t max_tokens);
  void BeginMatch(SequenceKv& kv, std::span<const CacheUnit> units);
  void Evict(SequenceId id, int32_t blocks);
  void Trace(AllocationEvent::Kind kind, SequenceId id, int32_t tokens, int32_t blocks);
  absl::Status CheckSequence(SequenceId id, const SequenceKv& kv) const;

  const KvCacheOptions options_;
  const Clock* const clock_;
  BlockAllocator allocator_;
  RadixTree tree_;                                         // empty without prefix_cache
  absl::flat_hash_map<SequenceId, SequenceKv> sequences_;  // their locks go before the tree
  KvCacheStats totals_;                                    // the ever-growing figures
  std::vector<AllocationEvent> trace_;
};

}  // namespace baton
