// The sequences of one sliding-window group: their block tables and what each may still take.
//
// A table is as long as the sequence's table of the full-attention group, and entry i belongs to
// the same tokens. Entries that hold no block are kNoBlock: those that slid out of the window, and
// those that no step has reached yet. No step reads them, because no visible range covers them; a
// runner that uploads tables puts its scratch block there.
//
// A sequence with `committed` tokens needs the slots from committed - window + 1 on: every query
// still to come is at a position >= committed, also one in a step that runs now. Slots before that
// are dead, and Trim frees blocks of dead slots alone. So it may be called at any time, and is
// called when a step's KV is committed.
//
// Reserving takes no block for each token of a prompt, but only those of the next steps: slots
// [committed, committed + max_step_tokens). The rest of a long prompt is computed in blocks that
// the window gives back. So that a prefill never stops half way, each sequence has a charge: the
// most blocks that it will hold at once until it reaches the reserved length. The charges of all
// sequences, and the blocks that transfers alone hold, never exceed the pool, with two exceptions:
// the pool shrank, or a transfer goes on reading what has slid out. Then a reservation fails and
// the caller waits or preempts. Blocks that sequences share count for each of them, since a window
// slides away from what is shared.
//
// A prefix that comes from another worker needs the window at its end alone (GrowToImport).
//
// Invariants:
//  1. held <= charge for each sequence, and `charged` is the sum of the charges.
//  2. Every entry that the next token of a sequence sees, and whose slots are committed, holds a
//     block.
//  3. A shared entry (behind which the tree has the full block) that is cached at all is cached
//     beside that full block.
//
// Thread safety: belongs to the engine thread.
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
  // `group`: the group's number, from 1 on. `max_step_tokens`: how many tokens of one sequence may
  // be reserved for steps and not committed. REQUIRES: as WindowCache; max_step_tokens >= 1.
  WindowTables(int32_t group, const WindowPoolOptions& options, int32_t block_size,
               int32_t max_step_tokens, int32_t full_blocks, EvictionPolicy policy);
  WindowTables(const WindowTables&) = delete;
  WindowTables& operator=(const WindowTables&) = delete;

  int32_t group() const { return group_; }
  WindowCache& cache() { return cache_; }
  const WindowCache& cache() const { return cache_; }

  // Starts a sequence behind a match: `path` has the full group's blocks, in whole blocks. Takes
  // what the window shows of them. REQUIRES: LongestWhole(path) is all of it; id is new.
  void Begin(SequenceId id, std::span<const BlockId> path, int32_t priority);
  // Starts a sequence with one run of blocks, which it keeps. False, and nothing taken, when no run
  // is free. REQUIRES: id is new.
  bool BeginRun(SequenceId id, int32_t blocks);

  // How a table is to grow.
  struct Growth {
    int32_t committed = 0;  // tokens
    int32_t blocks = 0;     // the table's length after it
    int32_t first = 0;      // entries [first, end) get a block where they have none
    int32_t end = 0;
    bool copies_tail = false;  // the sequence will write a block that others hold too
  };
  // To compute up to `tokens`, or to take the KV of a prefix of `tokens` from elsewhere.
  Growth GrowToCompute(SequenceId id, int32_t committed, int32_t tokens) const;
  Growth GrowToImport(SequenceId id, int32_t committed, int32_t tokens) const;
  // ResourceExhausted, with both numbers, if the pool cannot give it.
  absl::Status CheckRoom(SequenceId id, const Growth& growth) const;
  // Takes the blocks. A tail that others hold is exchanged; the copy is the caller's to make.
  // REQUIRES: CheckRoom.
  std::optional<BlockCopy> Grow(SequenceId id, const Growth& growth);

  // Frees blocks whose slots are dead, and those that an import reserved and that lie further ahead
  // than a step may reach.
  void Trim(SequenceId id, int32_t committed);
  // Caches the sequence's blocks `first`, first + 1, ... beside the tree's blocks `full` of the
  // same tokens. Blocks that are cached there already are swapped for those, and the sequence's own
  // freed.
  void Insert(SequenceId id, int32_t first, std::span<const BlockId> full);
  // ResourceExhausted, with both numbers, if a fork at `committed` tokens has no room.
  absl::Status CheckRoomToFork(SequenceId parent, int32_t committed) const;
  // REQUIRES: CheckRoomToFork; child is new.
  void Fork(SequenceId parent, SequenceId child, int32_t committed);
  void Release(SequenceId id);

  // Valid until the next call.
  std::span<const BlockId> Table(SequenceId id) const { return Get(id).blocks; }
  // The longest boundary in [committed, tokens] whose window the table has blocks for. What lies in
  // the blocks is the caller's to know (KvCacheManager::WholeBoundary).
  int32_t LongestWhole(SequenceId id, int32_t committed, int32_t tokens) const;
  int32_t held(SequenceId id) const { return Get(id).held; }

  // What a new sequence could still be charged; below zero while the charges exceed the pool.
  int32_t available() const { return cache_.blocks().limit() - charged_ - cache_.pinned_only(); }
  int32_t charged() const { return charged_; }
  // What a sequence of `tokens` tokens, `matched` of them cached, is charged.
  int32_t ChargeToAdmit(int32_t matched, int32_t tokens) const;
  // The same where the rest is imported.
  int32_t ChargeToImport(int32_t matched, int32_t tokens) const;

  // Recounts one sequence against its full table, of which `shared_blocks` are the tree's.
  absl::Status CheckSequence(SequenceId id, int32_t committed, std::span<const BlockId> full,
                             int32_t shared_blocks) const;
  // Recounts holds, charges and the cache. O(blocks).
  absl::Status CheckConservation() const;

 private:
  struct SequenceTable {
    std::vector<BlockId> blocks;
    int32_t begin = 0;  // all entries before it are kNoBlock
    int32_t end = 0;    // and all from here on
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
  const int32_t most_blocks_;  // that a window and a step can span
  WindowCache cache_;
  absl::flat_hash_map<SequenceId, SequenceTable> tables_;
  int32_t charged_ = 0;
};

}  // namespace baton
