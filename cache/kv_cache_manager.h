// The life of a sequence's KV: match → reserve → commit → insert → release.
//
// A sequence begins with the longest cached prefix of its units (locked in the prefix tree),
// reserves blocks as it grows, commits tokens once their KV is written, may insert committed full
// blocks after every chunk (its lock then moves to the new node), and ends through Release: one
// exit for finish, stop, cancel, deadline and peer death.
//
// The machines inside: prefix_cache.h (group 0's pool, and what is cached in it), full_tables.h
// (its sequences), window_groups.h (the other groups) and water_marks.h. The manager joins them:
// what happens to a sequence happens in all groups, and is traced.
//
// Invariants, beside theirs:
//  1. The shared prefix (matched, then inserted) is read-only and covered by the sequence's lock;
//     blocks behind it belong to the sequence alone. So a sequence only ever writes blocks that no
//     other sequence holds.
//  2. A match ends at a block boundary at least one token before the end of the known units.
//  3. Cached blocks that no sequence or transfer uses are evictable; Reserve evicts them before it
//     fails. Past the high-water mark they are evicted ahead of need, down to the low-water mark.
//
// A model with sliding windows has more KV groups (kv_cache_spec.h). Group 0 has full attention and
// is what the prefix tree, matches and KV events speak of; `options.windows` are groups 1, 2, ...,
// each with its pool and a table per sequence. A match ends where every window is whole. Blocks
// that slid out of a window are freed when a step is committed (FreeBehindWindows). Every figure
// and every hold without a group is group 0's. A cache without windows pays for none of this but an
// empty vector.
//
// Kinds (CacheKind) differ in who may find a sequence's KV again: nobody, itself after a
// preemption, or every request of its namespace. Contiguous mode (`paged` false) gives a sequence
// one run of blocks at Begin, sized for its largest length, and is naive: what paging saves, and
// what it must equal bit for bit.
//
// A fork (parallel samples, beams) shares all blocks of its parent. Who writes into a part-full
// block that others hold gets one of its own first, and a BlockCopy says what to copy there.
//
// Thread safety: belongs to the engine thread.
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
#include "cache/eviction_policy.h"
#include "cache/full_tables.h"
#include "cache/kv_cache_spec.h"
#include "cache/pool_resize.h"
#include "cache/prefix_cache.h"
#include "cache/water_marks.h"
#include "cache/window_groups.h"
#include "common/clock.h"
#include "common/strong_int.h"

namespace baton {

struct KvCacheOptions {
  // Without the scratch block, which is the pool's last and not managed here.
  int32_t num_blocks = 0;
  int32_t max_blocks = 0;  // how far Resize may grow it; 0: not at all
  int32_t block_size = 16;
  CacheKind kind = CacheKind::kRadix;
  bool paged = true;              // false: kind is naive
  int32_t min_prefix_tokens = 0;  // a shorter match counts as none
  EvictionPolicy eviction_policy = EvictionPolicy::kLru;
  uint64_t hash_seed = 0;  // of the prefix tree: random where clients may be hostile
  // Shares of the pool in use: above the first, cached blocks are evicted until the second is
  // reached or none is left. 1: only when a sequence needs them.
  double high_water = 1.0;
  double low_water = 1.0;
  bool kv_events = false;     // tell of what is cached (TakeKvEvents); of kind radix alone
  bool record_trace = false;  // keep an allocation trace for `inspect` (bounded)
  // Groups 1, 2, ...: at most kMaxKvGroups - 1 of them.
  std::vector<WindowPoolOptions> windows = {};
  // With windows: how many tokens of one sequence may be in steps that are not committed.
  int32_t max_step_tokens = 512;
};

// The window groups of a spec, without their pools' sizes. Refuses what CheckKvCacheSpec refuses.
absl::StatusOr<std::vector<WindowPoolOptions>> WindowsOf(const KvCacheSpec& spec);

struct WindowStats {
  BlockAllocator::Accounting blocks;
  int32_t evictable = 0;       // cached, without a sequence or transfer
  int32_t charged = 0;         // the most that the live sequences will hold at once
  int64_t evicted_blocks = 0;  // ever
};

// Cached blocks with a transfer's hold: of group 0, and of each window those that the boundary at
// their end needs.
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
  int32_t evictable = 0;  // cached and unlocked
  int64_t lookups = 0;    // Begin calls
  int64_t hits = 0;       // with a non-empty match
  int64_t lookup_tokens = 0;
  int64_t hit_tokens = 0;
  int64_t evictions = 0;  // cached prefixes that lost blocks
  int64_t evicted_blocks = 0;
  int64_t evicted_tokens = 0;
  int64_t radix_nodes = 0;
  // Slots reserved but not committed over slots reserved, of live sequences (internal
  // fragmentation).
  int64_t reserved_slots = 0;
  int64_t committed_slots = 0;
  std::vector<WindowStats> windows;  // groups 1, 2, ...

  // Share of the requests that found something, and of all tokens those found; 0 before the first.
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
  // REQUIRES: options valid (num_blocks >= 1, max_blocks 0 or at least that, block_size a power of
  // two in [1,128], naive if not paged, 0 < low_water <= high_water <= 1; windows as WindowTables).
  KvCacheManager(const KvCacheOptions& options, const Clock* clock);
  // Live sequences are released; REQUIRES: no hold of a transfer or a step is left.
  ~KvCacheManager();
  KvCacheManager(const KvCacheManager&) = delete;
  KvCacheManager& operator=(const KvCacheManager&) = delete;

  // Starts a sequence: matches `units` (all known units of the sequence, prompt and, after a
  // preemption, generated ones) and locks the match. Returns the number of matched tokens, already
  // committed. In contiguous mode reserves the whole run for max_tokens: ResourceExhausted when
  // there is none. What the sequence uses is cached with at least its priority. REQUIRES: id is
  // new; max_tokens >= units.size().
  absl::StatusOr<int32_t> Begin(SequenceId id, CacheNamespace cache_namespace,
                                std::span<const CacheUnit> units, int32_t max_tokens,
                                int32_t priority = 0);

  // Starts a sequence for a prefix that comes from another worker's cache: `units` in whole blocks.
  // Locks what is cached of them already, which counts as no lookup, and reserves the rest; both
  // numbers and nothing taken when that would leave fewer than `spare_blocks` to be had in any
  // group (ResourceExhausted). FailedPrecondition where requests share no prefixes. Returns the
  // tokens that are cached; the rest is committed as it comes, then InsertCommitted and Release as
  // ever. Cached prefixes get at least this priority. REQUIRES: id is new; units.size() is a
  // multiple of the block size.
  absl::StatusOr<int32_t> BeginImport(SequenceId id, CacheNamespace cache_namespace,
                                      std::span<const CacheUnit> units, int32_t spare_blocks,
                                      int32_t priority = 0);
  // The cached blocks of the longest prefix of `units`, from block `first_block` on, each with a
  // transfer's hold: for another worker's cache. Counts as a use of the prefix, not as a lookup.
  // Empty if a window's blocks are promised to sequences.
  HeldBlocks HoldPrefix(CacheNamespace cache_namespace, std::span<const CacheUnit> units,
                        int32_t first_block);

  // Makes room for `tokens` slots in total, evicting as needed. ResourceExhausted, with both
  // numbers and nothing taken, when the pool cannot give them. May add copies to TakeCopies.
  // Windows get blocks for slots [committed, committed + max_step_tokens) alone, and a promise for
  // the rest: with windows, call it again before each step with the same `tokens`. Such a
  // call fails in two cases: the window's pool shrank, or a transfer still holds blocks that slid
  // out of it.
  absl::Status Reserve(SequenceId id, int32_t tokens);
  // The same for KV that comes from elsewhere: windows get blocks for what the token behind
  // `tokens` sees.
  absl::Status ReserveForImport(SequenceId id, int32_t tokens);
  // How much of an import of `asked` tokens may be committed when tokens [committed, landed) have
  // come: the longest boundary in [committed, landed] with whole windows. `landed` itself without
  // windows. The sender sent windows as the token behind `asked` sees them. An earlier boundary
  // needs older slots, and these are there only if they lie before `committed`.
  int32_t WholeBoundary(SequenceId id, int32_t landed, int32_t asked) const;

  // Starts `child` with all that `parent` has committed, sharing its blocks. Inserts the parent's
  // full blocks first (InsertCommitted's rule on block tables). FailedPrecondition in contiguous
  // mode, ResourceExhausted without room in a window. REQUIRES: parent exists, child is new.
  absl::Status Fork(SequenceId parent, SequenceId child);
  // Copies that Reserve asked for since the last call, to be made in this order, all of them,
  // before the next step writes, a transfer into newly reserved blocks is posted or memory of
  // RetiredBlocks goes. Blocks may have been given back and handed out again since: in their order
  // the copies still leave in every block what its holders expect.
  std::vector<BlockCopy> TakeCopies() { return std::exchange(copies_, {}); }

  // Slots [committed, tokens) now hold KV of `units` (the units of just those slots). REQUIRES:
  // reserved.
  void Commit(SequenceId id, std::span<const CacheUnit> units) { tables_.Commit(id, units); }

  // Puts committed full blocks into the prefix tree and moves the sequence's lock there; blocks the
  // tree already had are swapped for the tree's and the sequence's own freed. Changes the block
  // table: a transfer or a step that reads a swapped block needs its own hold on it, and both
  // copies hold the same bytes. O(1) while no further block is full.
  void InsertCommitted(SequenceId id) {
    if (rules_.shares) InsertFullBlocks(id);
  }
  // Frees the window blocks that no token to come can see. Called when a step is committed, behind
  // InsertCommitted: what is inserted stays cached when the sequence lets go of it. Steps that
  // still run read none of it, since their tokens are all behind the committed ones.
  void FreeBehindWindows(SequenceId id) {
    if (!windows_.empty()) windows_.FreeBehind(id, committed(id));
  }

  // The one exit. With `keep`, committed full blocks stay cached; without, only those that were
  // inserted before do. Blocks that a transfer or a step holds stay until that ends.
  void Release(SequenceId id, bool keep);
  // The same for a sequence that will begin again under its id: what it committed stays cached for
  // it, unless the kind is naive.
  void Preempt(SequenceId id);

  bool Contains(SequenceId id) const { return tables_.Contains(id); }
  // Valid until the next call on this manager. In a window's table, entries outside of the window
  // are kNoBlock.
  std::span<const BlockId> BlockTable(SequenceId id) const { return tables_.Table(id); }
  std::span<const BlockId> BlockTable(SequenceId id, int32_t group) const {
    return group == 0 ? tables_.Table(id) : windows_.At(group).Table(id);
  }
  int32_t committed(SequenceId id) const { return tables_.committed(id); }
  int32_t capacity(SequenceId id) const { return tables_.capacity(id); }  // slots reserved
  int32_t matched(SequenceId id) const { return tables_.matched(id); }    // tokens found at Begin
  // Tokens in blocks of the prefix tree.
  int32_t shared_tokens(SequenceId id) const {
    return tables_.shared_blocks(id) * options_.block_size;
  }

  // A transfer's own hold on blocks of a group: outlives the sequence. REQUIRES: no kNoBlock.
  void HoldForTransfer(std::span<const BlockId> blocks, int32_t group = 0);
  void ReleaseTransferHold(std::span<const BlockId> blocks, int32_t group = 0);
  // A step's own hold on blocks of a group: a step that runs may still read or write them, though
  // their sequence has ended or has others by now. They may be free again (TakeCopies).
  // REQUIRES: no kNoBlock.
  void HoldForStep(std::span<const BlockId> blocks, int32_t group = 0);
  void ReleaseStepHold(std::span<const BlockId> blocks, int32_t group = 0);

  int32_t groups() const { return 1 + windows_.size(); }
  int32_t num_blocks(int32_t group = 0) const { return Blocks(group).limit(); }
  int32_t max_blocks(int32_t group = 0) const { return Blocks(group).capacity(); }
  // Grows or shrinks a group's pool to `blocks`. Shrinking gives up free and cached blocks behind
  // the new end at once, those in use when their users are done (pool_resize.h, window_cache.h):
  // retiring_blocks counts these, and at zero the memory there is idle. The caller chooses how
  // groups share memory. InvalidArgument, with the range, outside [1, max_blocks].
  absl::Status Resize(int32_t blocks, int32_t group = 0);
  int32_t retiring_blocks(int32_t group = 0) const { return Blocks(group).retiring(); }
  // Blocks [begin, end) behind the end of the pool that have no holder, in runs: their memory may
  // go. O(blocks behind the end).
  std::vector<BlockRange> RetiredBlocks(int32_t group = 0) const {
    return baton::RetiredBlocks(Blocks(group));
  }
  // How many blocks a new sequence could get: free + evictable, less what retires.
  int32_t available_blocks() const { return cache_.available(); }
  // The same for every group. A window's are those that it has not promised to live sequences.
  BlockCounts AvailableBlocks() const;
  BlockCounts PoolBlocks() const;  // num_blocks of every group
  // `count` blocks of every group that there is.
  BlockCounts OfEveryGroup(int32_t count) const;
  int32_t blocks_in_transfer() const;  // of all groups
  // Blocks of all groups that steps hold and neither a sequence nor a transfer nor the cache.
  int32_t step_blocks() const;
  int32_t BlocksFor(int32_t tokens) const {
    return static_cast<int32_t>((int64_t{tokens} + options_.block_size - 1) / options_.block_size);
  }
  // The most blocks of each group that a sequence of `tokens` tokens holds at once.
  BlockCounts BlocksToHold(int32_t tokens) const;
  // What Begin with these units and Reserve of them all would take out of AvailableBlocks: blocks
  // to allocate, and cached ones that the match would lock. Without effect. With chunk-only the id
  // says whose prefixes count.
  BlockCounts BlocksToAdmit(CacheNamespace cache_namespace, std::span<const CacheUnit> units,
                            int32_t max_tokens, SequenceId id = SequenceId()) const;
  // Longest cached prefix, in tokens, without locking or counting it.
  int32_t PeekMatch(CacheNamespace cache_namespace, std::span<const CacheUnit> units,
                    SequenceId id = SequenceId()) const;

  // Forgets everything cached, or one namespace: no later sequence finds any of it. Unlocked blocks
  // are freed at once, others with their last user. Returns how many were freed at once. With
  // chunk-only nobody finds another's prefix, and there are no namespaces to name.
  int32_t ClearCache(std::optional<CacheNamespace> only = {}) {
    return only ? cache_.tree().Clear(*only) : cache_.tree().Clear();
  }
  // What changed since the last call in the prefixes that sequences can find, as encoded batches of
  // KV events (cache/index/kv_event.h), oldest first. None without the kv_events option.
  std::vector<std::string> TakeKvEvents() { return cache_.TakeEvents(); }
  // All that they can find, as encoded batches of stored events, at least one. Together with what
  // TakeKvEvents returns from now on it says as much as every batch since the beginning. REQUIRES:
  // publishes().
  std::vector<std::string> SnapshotKvEvents() const;
  bool publishes() const { return options_.kv_events && rules_.shares; }

  KvCacheStats Stats() const;
  // Nodes on the prefix tree's longest path. O(nodes).
  int32_t CacheDepth() const { return cache_.tree().nodes().Depth(); }
  // The latest events, oldest first: at least the last kTraceEvents of them, at most twice as many.
  const std::vector<AllocationEvent>& trace() const { return trace_.events(); }
  // Recounts allocator, tree and tables against each other: Internal, with the numbers, names what
  // differs. O(blocks + nodes).
  absl::Status CheckConservation() const;
  // The same for transfers' holds: `held` names each block as often as its transfers hold it.
  absl::Status CheckTransferHolds(std::span<const BlockId> held, int32_t group = 0) const;
  // The same for steps' holds.
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
  FullTables tables_;    // their locks go before the tree
  KvCacheStats totals_;  // the ever-growing figures
  std::vector<BlockCopy> copies_;
};

}  // namespace baton
