// Manages the KV of sequences: match → reserve → commit → insert → release.
//
// A sequence goes through these steps:
// - Begin matches the longest cached prefix of its units and locks it in the prefix tree.
// - Reserve takes blocks as the sequence grows.
// - Commit records tokens after their KV was written.
// - InsertCommitted may put full committed blocks into the tree after every chunk. The lock then
//   moves to the new node.
// - Release is the only exit: for finish, stop, cancel, deadline and a dead peer.
//
// The parts are prefix_cache.h (group 0's pool and its cached prefixes), full_tables.h (group 0's
// sequences), window_groups.h (the other groups) and water_marks.h. The manager applies each
// operation to all groups and records it in the trace.
//
// Invariants, in addition to those of the parts:
//  1. The shared prefix (matched, then inserted) is read-only and covered by the sequence's lock.
//     Blocks after it belong to the sequence alone. So a sequence only writes blocks that no other
//     sequence holds.
//  2. A match ends at a block boundary at least one token before the end of the known units.
//  3. Cached blocks that no sequence or transfer uses are evictable. Reserve evicts them before it
//     fails, first those of owners that are over their share of the pool. Above the high watermark
//     they are evicted early, down to the low watermark, but only of owners over their share.
//
// A model with sliding windows has more KV groups (kv_cache_spec.h). Group 0 has full attention.
// The prefix tree, matches and KV events use its blocks. `options.windows` are groups 1, 2, ...,
// each with its own pool and one table for each sequence. A match ends where every window is whole.
// Committing a step frees the blocks that slid out of a window (FreeBehindWindows). A count or hold
// without a group belongs to group 0. A cache without windows only pays for an empty vector.
//
// A kind (CacheKind) says which sequences may reuse a sequence's KV: none, only the same one after
// a preemption, or all of its namespace. Contiguous mode (`paged` false) gives a sequence one run
// of blocks at Begin, sized for its largest length. Its kind is naive. It is the baseline for
// paging: results must be equal bit for bit, and the memory difference is what paging saves.
//
// A fork (parallel samples, beams) shares all blocks of its parent. Before a sequence writes into a
// part-full shared block, it gets its own block, and a BlockCopy tells the caller what to copy.
//
// Thread safety: used by the engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/allocation_trace.h"
#include "cache/block_allocator.h"
#include "cache/block_copy.h"
#include "cache/block_counts.h"
#include "cache/cache_key.h"
#include "cache/cache_kind.h"
#include "cache/cache_owners.h"
#include "cache/eviction_policy.h"
#include "cache/full_tables.h"
#include "cache/index/indexed_worker.h"
#include "cache/kv_cache_spec.h"
#include "cache/pool_resize.h"
#include "cache/prefix_cache.h"
#include "cache/water_marks.h"
#include "cache/window_groups.h"
#include "common/clock.h"
#include "common/strong_int.h"

namespace baton {

struct KvCacheOptions {
  // Excludes the scratch block, which is the pool's last block and not managed here.
  int32_t num_blocks = 0;
  int32_t max_blocks = 0;  // upper bound for Resize; 0 means num_blocks
  int32_t block_size = 16;
  CacheKind kind = CacheKind::kRadix;
  bool paged = true;              // false: contiguous mode, kind must be naive
  int32_t min_prefix_tokens = 0;  // a shorter match counts as no match
  EvictionPolicy eviction_policy = EvictionPolicy::kLru;
  uint64_t hash_seed = 0;  // of the prefix tree; random if clients may be hostile
  // Shares of the pool in use. Above high_water, cached blocks are evicted until low_water is
  // reached or all owners are within their shares. With 1, eviction happens only when a sequence
  // needs blocks.
  double high_water = 1.0;
  double low_water = 1.0;
  bool kv_events = false;     // publish cached prefixes (TakeKvEvents); kind radix only
  bool record_trace = false;  // keep a bounded allocation trace for `inspect`
  // Groups 1, 2, ...; at most kMaxKvGroups - 1.
  std::vector<WindowPoolOptions> windows = {};
  // With windows: the most tokens of one sequence that may be in uncommitted steps.
  int32_t max_step_tokens = 512;
};

// The window groups of a spec, without pool sizes. Fails as CheckKvCacheSpec does.
absl::StatusOr<std::vector<WindowPoolOptions>> WindowsOf(const KvCacheSpec& spec);

struct WindowStats {
  BlockAllocator::Accounting blocks;
  int32_t evictable = 0;       // cached, without holds of sequences, transfers or steps
  int32_t charged = 0;         // sum of the charges of live sequences (window_tables.h)
  int64_t evicted_blocks = 0;  // since the start
};

// Cached blocks with a transfer's hold. `blocks` belong to group 0. Each window has the blocks that
// a match at the end of `blocks` needs.
struct HeldBlocks {
  std::vector<BlockId> blocks;
  struct Window {
    int32_t first = 0;  // number of blocks[0] on the path
    std::vector<BlockId> blocks;
  };
  std::vector<Window> windows;
};

struct KvCacheStats {
  BlockAllocator::Accounting blocks;
  int32_t chunk_blocks = 0;  // with a chunk hold; `blocks` counts them as cached
  int32_t evictable = 0;     // cached and unlocked
  int64_t lookups = 0;       // calls of Begin
  int64_t hits = 0;          // calls of Begin with a non-empty match
  int64_t lookup_tokens = 0;
  int64_t hit_tokens = 0;
  int64_t evictions = 0;  // leaves from which eviction took blocks
  int64_t evicted_blocks = 0;
  int64_t evicted_tokens = 0;
  int64_t radix_nodes = 0;
  // Slots of live sequences. The difference is internal fragmentation.
  int64_t reserved_slots = 0;
  int64_t committed_slots = 0;
  std::vector<WindowStats> windows;  // groups 1, 2, ...

  // Share of the lookups that hit, and share of all looked-up tokens that were matched. 0 before
  // the first lookup.
  double request_hit_rate() const {
    return lookups == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(lookups);
  }
  double token_reuse_rate() const {
    return lookup_tokens == 0
               ? 0
               : static_cast<double>(hit_tokens) / static_cast<double>(lookup_tokens);
  }
};

class KvCacheManager {
 public:
  // REQUIRES: num_blocks >= 1; max_blocks is 0 or at least num_blocks; block_size is a power of two
  // in [1, 128]; kind is naive if not paged; 0 < low_water <= high_water <= 1; windows as in
  // WindowTables.
  KvCacheManager(const KvCacheOptions& options, const Clock* clock);
  // Releases live sequences. REQUIRES: no hold of a transfer or a step is left.
  ~KvCacheManager();
  KvCacheManager(const KvCacheManager&) = delete;
  KvCacheManager& operator=(const KvCacheManager&) = delete;

  // Starts a sequence: matches `units` and locks the match. `units` are all known units of the
  // sequence: the prompt and, after a preemption, the generated tokens. Returns the number of
  // matched tokens, which are already committed. In contiguous mode it reserves the whole run for
  // max_tokens, and fails with ResourceExhausted if no such run is free. Cached blocks that the
  // sequence uses get at least its priority. From now on the namespace has this owner, and the
  // owner this share (cache_owners.h). REQUIRES: id is new; max_tokens >= units.size(); share in
  // [0, 1].
  absl::StatusOr<int32_t> Begin(SequenceId id, CacheNamespace cache_namespace,
                                std::span<const CacheUnit> units, int32_t max_tokens,
                                int32_t priority = 0, const CacheOwner& owner = {});

  // Starts a sequence that imports a prefix from another worker's cache. `units` are whole blocks.
  // Locks the part that is cached here, without counting a lookup, and reserves the rest. Returns
  // the number of cached tokens. The rest is committed as it arrives; then call InsertCommitted and
  // Release as usual. Cached prefixes get at least this priority. ResourceExhausted, with both
  // numbers and nothing taken: fewer than `spare_blocks` blocks would stay available in a group.
  // FailedPrecondition: requests share no prefixes here. REQUIRES: id is new; units.size() is a
  // multiple of the block size.
  absl::StatusOr<int32_t> BeginImport(SequenceId id, CacheNamespace cache_namespace,
                                      std::span<const CacheUnit> units, int32_t spare_blocks,
                                      int32_t priority = 0, const CacheOwner& owner = {});
  // For another worker's cache: returns the cached blocks of the longest prefix of `units`, from
  // block `first_block` on, each with a transfer's hold. Counts as a use of the prefix, not as a
  // lookup. Returns nothing if sequences may still need the window's free blocks.
  HeldBlocks HoldPrefix(CacheNamespace cache_namespace, std::span<const CacheUnit> units,
                        int32_t first_block);

  // Starts a part of a chunked prompt that shares no prefix: it matches nothing. Insert nothing of
  // it. Does not count a lookup. In contiguous mode it reserves a run for `tokens`, and fails as
  // Begin does. REQUIRES: id is new.
  absl::Status BeginPart(SequenceId id, int32_t tokens);
  // Starts a sequence of whole cached blocks: locks them and takes no new block. Returns false,
  // with nothing taken, if one of them is not cached or sequences share no prefixes. Does not count
  // a lookup. The namespace keeps its owner. It only ends by Release. REQUIRES: id is new;
  // units.size() is a multiple of the block size; no windows.
  bool BeginCached(SequenceId id, CacheNamespace cache_namespace, std::span<const CacheUnit> units,
                   int32_t priority = 0);
  // The cached prefix of whole blocks that BeginCached would find. Changes nothing.
  RadixPeek PeekBlocks(CacheNamespace cache_namespace, std::span<const CacheUnit> units) const;
  // Same as InsertCommitted, but never changes the block table: inserts nothing if the tree has the
  // next block of the sequence already.
  void InsertIfNew(SequenceId id);

  // Reserves `tokens` slots in total and evicts as needed. ResourceExhausted, with both numbers and
  // nothing taken, if the pool has too few blocks. May add copies to TakeCopies. Windows get blocks
  // only for slots [committed, committed + max_step_tokens). The rest is only charged. So with
  // windows, call it again before each step with the same `tokens`. Such a call fails only if the
  // window's pool shrank, or if a transfer still holds blocks that slid out of the window.
  absl::Status Reserve(SequenceId id, int32_t tokens);
  // Same for imported KV. Windows get the blocks that the token after `tokens` sees.
  absl::Status ReserveForImport(SequenceId id, int32_t tokens);
  // How much of an import of `asked` tokens may be committed after tokens [committed, landed)
  // arrived. It is the longest boundary in [committed, landed] with whole windows. Without windows
  // it is `landed`. The sender sent only the windows that the token after `asked` sees. An earlier
  // boundary needs older slots, which exist only before `committed`.
  int32_t WholeBoundary(SequenceId id, int32_t landed, int32_t asked) const;

  // Starts `child` with everything that `parent` has committed, and shares its blocks. First
  // inserts the parent's full blocks, which may change its block table (InsertCommitted).
  // FailedPrecondition in contiguous mode. ResourceExhausted if a window has no room. REQUIRES:
  // parent exists, child is new.
  absl::Status Fork(SequenceId parent, SequenceId child);
  // Returns the copies that Reserve asked for since the last call. The caller must make all of
  // them, in this order, before any of these:
  // - the next step writes
  // - a transfer into newly reserved blocks is posted
  // - memory of RetiredBlocks is returned
  //
  // The blocks may have been freed and handed out again since. In this order, the copies still
  // leave every block with the contents that its holders expect.
  std::vector<BlockCopy> TakeCopies() { return std::exchange(copies_, {}); }
  // Adds a copy. The same rules apply. REQUIRES: both blocks are in use.
  void AddCopy(const BlockCopy& copy) { copies_.push_back(copy); }

  // Slots [committed, tokens) now hold KV of `units`, which are the units of just those slots.
  // REQUIRES: the slots are reserved.
  void Commit(SequenceId id, std::span<const CacheUnit> units) { tables_.Commit(id, units); }

  // Inserts committed full blocks into the prefix tree and moves the sequence's lock there. If the
  // tree already has an equal block, the block table takes the tree's and the sequence's own is
  // freed. A transfer or step that reads a swapped block needs its own hold on it. Both blocks hold
  // the same bytes. O(1) if no further block is full.
  void InsertCommitted(SequenceId id) {
    if (rules_.shares) InsertFullBlocks(id);
  }
  // Frees the window blocks that no future token can see. Call it when a step is committed, after
  // InsertCommitted, so that inserted blocks stay cached. Running steps do not read the freed
  // blocks, because their tokens all come after the committed ones.
  void FreeBehindWindows(SequenceId id) {
    if (!windows_.empty()) windows_.FreeBehind(id, committed(id));
  }

  // Ends a sequence; the only exit. With `keep`, committed full blocks stay cached. Without it,
  // only blocks inserted earlier do. Blocks that a transfer or a step holds stay until that hold is
  // released.
  void Release(SequenceId id, bool keep);
  // Same for a sequence that will begin again under its id. Its committed blocks stay cached for
  // it, unless the kind is naive.
  void Preempt(SequenceId id);

  bool Contains(SequenceId id) const { return tables_.Contains(id); }
  // Valid until the next call that changes this manager. In a window's table, entries outside the
  // window are kNoBlock.
  std::span<const BlockId> BlockTable(SequenceId id) const { return tables_.Table(id); }
  std::span<const BlockId> BlockTable(SequenceId id, int32_t group) const {
    return group == 0 ? tables_.Table(id) : windows_.At(group).Table(id);
  }
  int32_t committed(SequenceId id) const { return tables_.committed(id); }
  int32_t capacity(SequenceId id) const { return tables_.capacity(id); }  // reserved slots
  int32_t matched(SequenceId id) const { return tables_.matched(id); }    // tokens matched at Begin
  // Tokens in blocks of the prefix tree.
  int32_t shared_tokens(SequenceId id) const {
    return tables_.shared_blocks(id) * options_.block_size;
  }

  // A transfer's own holds on blocks of a group. They can outlive the sequence. REQUIRES: no
  // kNoBlock.
  void HoldForTransfer(std::span<const BlockId> blocks, int32_t group = 0);
  void ReleaseTransferHold(std::span<const BlockId> blocks, int32_t group = 0);
  // A step's own holds on blocks of a group. A running step may read or write blocks after their
  // sequence has ended or changed its table. The blocks may be free again (TakeCopies). REQUIRES:
  // no kNoBlock.
  void HoldForStep(std::span<const BlockId> blocks, int32_t group = 0);
  void ReleaseStepHold(std::span<const BlockId> blocks, int32_t group = 0);

  // The chunk cache's holds on blocks of group 0 (chunk_cache.h). These blocks count as cached, but
  // not as available. REQUIRES (CHECK): HoldForChunk: the blocks are in use, not in the prefix
  // tree, and without a chunk hold; ReleaseChunkHold: they have a chunk hold.
  void HoldForChunk(std::span<const BlockId> blocks);
  void ReleaseChunkHold(std::span<const BlockId> blocks);
  // `held` names every block with a chunk hold, once. Internal names the first difference.
  absl::Status CheckChunkHolds(std::span<const BlockId> held) const;

  int32_t groups() const { return 1 + windows_.size(); }
  int32_t num_blocks(int32_t group = 0) const { return Blocks(group).limit(); }
  int32_t max_blocks(int32_t group = 0) const { return Blocks(group).capacity(); }
  // Grows or shrinks a group's pool to `blocks`. Shrinking frees the free and cached blocks above
  // the new limit at once. Blocks in use are freed when their holds are released (pool_resize.h,
  // window_cache.h). retiring_blocks counts them. At zero the memory above the limit is unused. The
  // caller decides how groups share memory. InvalidArgument, with the range, outside [1,
  // max_blocks].
  absl::Status Resize(int32_t blocks, int32_t group = 0);
  int32_t retiring_blocks(int32_t group = 0) const { return Blocks(group).retiring(); }
  // Blocks [begin, end) above the limit that have no hold, as runs. Their memory may be returned.
  // O(blocks above the limit).
  std::vector<BlockRange> RetiredBlocks(int32_t group = 0) const {
    return baton::RetiredBlocks(Blocks(group));
  }
  // Blocks that a new sequence could get: free + evictable - retiring.
  int32_t available_blocks() const { return cache_.available(); }
  // Same for every group. For a window, blocks charged to live sequences are not available.
  BlockCounts AvailableBlocks() const;
  BlockCounts PoolBlocks() const;  // num_blocks of every group
  // `count` blocks in each existing group.
  BlockCounts OfEveryGroup(int32_t count) const;
  int32_t blocks_in_transfer() const;  // of all groups
  // True if a step holds one of these blocks of group 0.
  bool AnyInStep(std::span<const BlockId> blocks) const;
  // Blocks of all groups that only steps hold: no sequence, no transfer and not the cache.
  int32_t step_blocks() const;
  int32_t BlocksFor(int32_t tokens) const {
    return static_cast<int32_t>((int64_t{tokens} + options_.block_size - 1) / options_.block_size);
  }
  // The most blocks of each group that a sequence of `tokens` tokens holds at once.
  BlockCounts BlocksToHold(int32_t tokens) const;
  // The part of AvailableBlocks that Begin with these units and a Reserve of all of them would use.
  // It counts blocks to allocate, and cached blocks that the match would lock. Changes nothing.
  // With chunk-only, `id` selects the prefixes.
  BlockCounts BlocksToAdmit(CacheNamespace cache_namespace, std::span<const CacheUnit> units,
                            int32_t max_tokens, SequenceId id = SequenceId()) const;
  // Longest cached prefix in tokens, without locking or counting it.
  int32_t PeekMatch(CacheNamespace cache_namespace, std::span<const CacheUnit> units,
                    SequenceId id = SequenceId()) const;

  // Forgets everything cached, or one namespace. Later sequences find none of it. Unlocked blocks
  // are freed at once, others when their last hold is released. Returns how many were freed at
  // once. With chunk-only, sequences share no prefixes, so there is no namespace to name.
  int32_t ClearCache(std::optional<CacheNamespace> only = {}) { return cache_.ClearTree(only); }
  // Same effect on the owner as Begin, if a prefix of this namespace is cached.
  void SetOwner(CacheNamespace cache_namespace, const CacheOwner& owner) {
    cache_.tree().SetOwner(cache_namespace, owner);
  }
  // True if a prefix of this namespace is cached.
  bool HasPrefixes(CacheNamespace cache_namespace) const {
    return cache_.tree().nodes().roots().contains(cache_namespace);
  }
  // The chunk cache can return the entry with this key from now on, or no longer; in the host tier,
  // it can wake it. Published as a unit without parent, so that an index of the fleet finds it by
  // its key (kv_event.h).
  void ChunkStored(const Hash128& key, CacheTier tier = CacheTier::kDevice) {
    cache_.ChunkStored(key, tier);
  }
  void ChunkRemoved(const Hash128& key, CacheTier tier = CacheTier::kDevice) {
    cache_.ChunkRemoved(key, tier);
  }
  // Changes since the last call of the prefixes that sequences can match, and of the chunks, as
  // encoded batches of KV events (cache/index/kv_event.h), oldest first. Empty without the
  // kv_events option.
  std::vector<std::string> TakeKvEvents() { return cache_.TakeEvents(); }
  // All prefixes that sequences can match, and all chunks, as at least one encoded batch of stored
  // events. Together with the later results of TakeKvEvents it is equivalent to all batches since
  // the start.
  // REQUIRES: publishes().
  std::vector<std::string> SnapshotKvEvents() const;
  bool publishes() const { return options_.kv_events && rules_.shares; }

  KvCacheStats Stats() const;
  // Number of nodes on the prefix tree's longest path. O(nodes).
  int32_t CacheDepth() const { return cache_.tree().nodes().Depth(); }
  // The latest events, oldest first: at least the last kTraceEvents, at most twice as many.
  const std::vector<AllocationEvent>& trace() const { return trace_.events(); }
  // Recounts allocator, tree and tables and compares them. Internal names the first difference,
  // with the numbers. O(blocks + nodes).
  absl::Status CheckConservation() const;
  // Same for transfers' holds. `held` names each block as often as transfers hold it.
  absl::Status CheckTransferHolds(std::span<const BlockId> held, int32_t group = 0) const;
  // Same for steps' holds.
  absl::Status CheckStepHolds(std::span<const BlockId> held, int32_t group = 0) const;
  const KvCacheOptions& options() const { return options_; }

 private:
  CacheNamespace NamespaceOf(SequenceId id, CacheNamespace requested) const;
  int32_t MaxMatchBlocks(std::span<const CacheUnit> units) const;
  int32_t MinMatchBlocks() const { return BlocksFor(options_.min_prefix_tokens); }
  const BlockAllocator& Blocks(int32_t group) const {
    return group == 0 ? cache_.blocks() : windows_.At(group).cache().blocks();
  }
  absl::Status BeginRuns(SequenceId id, int32_t max_tokens);
  absl::Status ReserveFull(SequenceId id, int32_t tokens, FullTables::Missing missing);
  absl::Status ReserveAll(SequenceId id, int32_t tokens, bool imports);
  void InsertFullBlocks(SequenceId id);
  void End(SequenceId id, bool forgets);
  void KeepWaterMarks(SequenceId id, int32_t committed);
  void Trace(AllocationEvent::Kind kind, SequenceId id, int32_t tokens, int32_t blocks);
  void Pin(std::span<const BlockId> blocks, int32_t group, BlockHolder holder);
  void Unpin(std::span<const BlockId> blocks, int32_t group, BlockHolder holder);
  absl::Status CheckHolds(std::span<const BlockId> held, int32_t group, BlockHolder holder,
                          std::string_view holders) const;

  const KvCacheOptions options_;
  const CacheRules rules_;
  const WaterMarks marks_;
  AllocationTrace trace_;
  PrefixCache cache_;  // its tree is empty if naive
  WindowGroups windows_;
  FullTables tables_;    // destroyed before the tree, because tables have locks
  KvCacheStats totals_;  // totals since the start only
  std::vector<BlockCopy> copies_;
};

}  // namespace baton
