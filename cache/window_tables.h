// The sequences of one sliding-window group: their block tables and their charges.
//
// A table is as long as the sequence's table of the full-attention group, and entry i belongs to
// the same tokens. An entry without a block is kNoBlock: it slid out of the window, or no step has
// reached it. No visible range covers such entries, so no step reads them. A runner that uploads
// tables puts its scratch block there.
//
// A sequence with `committed` tokens needs the slots from committed - window + 1 on. Every future
// query has a position >= committed, and so has every query of a running step. Earlier slots are
// dead. Trim frees only blocks of dead slots, so it may be called at any time. The manager calls it
// when a step's KV is committed.
//
// A reservation takes blocks only for the next steps: slots [committed, committed +
// max_step_tokens). The rest of a long prompt reuses the blocks that the window frees. A prefill
// must never stop half way. So each sequence has a charge: the most blocks that it will hold at
// once before it reaches the reserved length. The charges of all sequences, plus the blocks that
// only transfers and steps hold, never exceed the pool, with two exceptions. The pool shrank, or a
// transfer still reads blocks that slid out. Then a reservation fails, and the caller waits or
// preempts. A shared block counts once for each of its sequences, because windows slide off shared
// blocks at different times.
//
// A prefix that is imported from another worker needs only the window at its end (GrowToImport).
//
// Invariants:
//  1. held <= charge for each sequence, and `charged` is the sum of the charges.
//  2. If the next token of a sequence sees an entry with committed slots, the entry holds a block.
//  3. If a shared entry's block is cached, it is cached beside the full block of the same entry. An
//     entry is shared if its full block is in the tree.
//
// Thread safety: used by the engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "cache/block_copy.h"
#include "cache/eviction_policy.h"
#include "cache/window_cache.h"
#include "common/strong_int.h"

namespace baton {

class WindowTables {
 public:
  // `group` is the group's number, from 1 on. `max_step_tokens` is the most tokens of one sequence
  // that may be reserved for steps and not committed. REQUIRES: as in WindowCache; max_step_tokens
  // >= 1.
  WindowTables(int32_t group, const WindowPoolOptions& options, int32_t block_size,
               int32_t max_step_tokens, int32_t full_blocks, EvictionPolicy policy,
               const CacheOwners* owners = nullptr);
  WindowTables(const WindowTables&) = delete;
  WindowTables& operator=(const WindowTables&) = delete;

  int32_t group() const { return group_; }
  WindowCache& cache() { return cache_; }
  const WindowCache& cache() const { return cache_; }

  // Starts a sequence with a match. `path` has the full group's matched blocks. Takes the window
  // blocks that the next token sees. REQUIRES: LongestWhole(path) is all of it; id is new.
  void Begin(SequenceId id, std::span<const BlockId> path, int32_t priority);
  // Starts a sequence with `blocks` blocks of consecutive ids, which it keeps until it ends.
  // Returns false and takes nothing if there is no such free run. REQUIRES: id is new.
  bool BeginRun(SequenceId id, int32_t blocks);

  // Plan for growing a table.
  struct Growth {
    int32_t committed = 0;  // committed tokens
    int32_t blocks = 0;     // length of the table afterwards
    int32_t first = 0;      // entries [first, end) without a block get one
    int32_t end = 0;
    bool copies_tail = false;  // the sequence will write to a block that others also hold
  };
  // Plans to compute up to `tokens`, or to import the KV of a prefix of `tokens`.
  Growth GrowToCompute(SequenceId id, int32_t committed, int32_t tokens) const;
  Growth GrowToImport(SequenceId id, int32_t committed, int32_t tokens) const;
  // ResourceExhausted, with both numbers, if the pool has no room for the growth.
  absl::Status CheckRoom(SequenceId id, const Growth& growth) const;
  // Takes the blocks. If the last block is shared, it is exchanged for a new block, and the caller
  // must make the returned copy. REQUIRES: CheckRoom succeeded.
  std::optional<BlockCopy> Grow(SequenceId id, const Growth& growth);

  // Frees the blocks of dead slots. Also frees blocks that an import reserved further ahead than a
  // step may reach.
  void Trim(SequenceId id, int32_t committed);
  // Caches the sequence's blocks from number `first` on beside the tree's blocks `full` of the same
  // tokens, which `owner` owns. If a window block is already cached there, the table takes it and
  // the sequence's own is freed.
  void Insert(SequenceId id, int32_t first, std::span<const BlockId> full,
              OwnerSlot owner = kCommonSlot);
  // ResourceExhausted, with both numbers, if there is no room for a fork at `committed` tokens.
  absl::Status CheckRoomToFork(SequenceId parent, int32_t committed) const;
  // REQUIRES: CheckRoomToFork succeeded; child is new.
  void Fork(SequenceId parent, SequenceId child, int32_t committed);
  void Release(SequenceId id);

  // Valid until the next call that changes this object.
  std::span<const BlockId> Table(SequenceId id) const { return Get(id).blocks; }
  // The longest boundary in [committed, tokens] for which the table has all window blocks. The
  // caller must know whether their contents have arrived (KvCacheManager::WholeBoundary).
  int32_t LongestWhole(SequenceId id, int32_t committed, int32_t tokens) const;
  int32_t held(SequenceId id) const { return Get(id).held; }

  // Blocks that can be charged to new sequences. Negative while the charges exceed the pool.
  int32_t available() const { return cache_.blocks().limit() - charged_ - cache_.pinned_only(); }
  int32_t charged() const { return charged_; }
  // Charge of a sequence of `tokens` tokens, of which `matched` are cached.
  int32_t ChargeToAdmit(int32_t matched, int32_t tokens) const;
  // Same, if the remaining tokens are imported.
  int32_t ChargeToImport(int32_t matched, int32_t tokens) const;

  // Recounts one sequence against its full table, whose first `shared_blocks` blocks are in the
  // tree.
  absl::Status CheckSequence(SequenceId id, int32_t committed, std::span<const BlockId> full,
                             int32_t shared_blocks) const;
  // Recounts holds, charges and the cache. O(blocks).
  absl::Status CheckConservation() const;

 private:
  struct SequenceTable {
    std::vector<BlockId> blocks;
    int32_t begin = 0;  // all entries before it are kNoBlock
    int32_t end = 0;    // all entries from here on are kNoBlock
    int32_t held = 0;
    int32_t charge = 0;
    int32_t priority = 0;
    bool is_run = false;
  };
  int32_t BlocksFor(int64_t tokens) const {
    return static_cast<int32_t>((tokens + block_size_ - 1) / block_size_);
  }
  SequenceTable& Get(SequenceId id);
  const SequenceTable& Get(SequenceId id) const;
  int32_t ChargeOf(int32_t blocks, int32_t committed, int32_t held) const;
  void SetCharge(SequenceTable& table, int32_t charge);
  void ReleaseEntry(SequenceTable& table, int32_t at);
  int32_t CountMissing(const SequenceTable& table, const Growth& growth) const;
  bool WritesSharedBlock(const SequenceTable& table, int32_t committed) const;

  const int32_t group_;
  const int32_t block_size_;
  const int32_t max_step_tokens_;
  const int32_t most_blocks_;  // the most blocks that a window and a step can span
  WindowCache cache_;
  absl::flat_hash_map<SequenceId, SequenceTable> tables_;
  int32_t charged_ = 0;
};

}  // namespace baton
