// The sequences of the full-attention group: their block tables, and what of them is committed.
//
// The twin of a sliding window's WindowTables. A table begins with shared blocks: those of the
// prefix tree that the sequence matched or inserted, under its lock. Later blocks belong to the
// sequence alone. After a fork, parent and child share a part-full last block; the first writer
// gets a copy (BlockCopy).
//
// Invariants:
//  1. shared <= committed <= capacity. Only committed units are inserted, and only in full blocks.
//  2. Shared blocks are in the tree, others are not.
//  3. A block has as many sequence holds as there are tables with it.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "cache/block_copy.h"
#include "cache/cache_key.h"
#include "cache/prefix_cache.h"
#include "cache/radix_tree.h"
#include "common/strong_int.h"

namespace baton {

class FullTables {
 public:
  // `keeps_units`: whether committed units are remembered, so that they can be inserted. REQUIRES:
  // `cache` outlives this.
  FullTables(int32_t block_size, bool keeps_units, PrefixCache* cache)
      : block_size_(block_size), keeps_units_(keeps_units), cache_(*cache) {}
  FullTables(const FullTables&) = delete;
  FullTables& operator=(const FullTables&) = delete;

  // Starts a sequence behind a match, whose lock it keeps. REQUIRES: id is new (CHECK).
  void Begin(SequenceId id, RadixMatch match);
  // Starts a sequence with one run of blocks. False, and nothing taken, when no run is free.
  // REQUIRES: id is new (CHECK).
  bool BeginRun(SequenceId id, int32_t blocks);
  // Starts `child` with all that `parent` has committed, sharing its blocks. REQUIRES: where
  // units are kept, the parent's full blocks are inserted; child is new (CHECK).
  void Fork(SequenceId parent, SequenceId child);

  // What a reservation of a sequence with `committed` tokens lacks: blocks, one of them for the
  // copy of a shared tail.
  struct Missing {
    int32_t blocks = 0;
    int32_t committed = 0;
    bool copies_tail = false;
  };
  // To have `tokens` slots in total. Called for every row of every step.
  Missing MissingFor(SequenceId id, int32_t tokens) const {
    const SequenceTable& table = Get(id);
    const int32_t more = std::max(0, BlocksFor(tokens) - static_cast<int32_t>(table.blocks.size()));
    const bool copies = tokens > table.committed && WritesSharedBlock(table);
    return {.blocks = more + (copies ? 1 : 0), .committed = table.committed, .copies_tail = copies};
  }
  // Takes the blocks. A tail that others hold is exchanged; the copy is the caller's to make.
  // REQUIRES: as many blocks are free (CHECK).
  std::optional<BlockCopy> Grow(SequenceId id, Missing missing);
  // Slots from `committed` on hold KV of `units`. REQUIRES: reserved (CHECK).
  void Commit(SequenceId id, std::span<const CacheUnit> units);

  // What an insertion did to a sequence with `committed` tokens: `count` table entries from `first`
  // on are the tree's now, `fresh` of them new there.
  struct Inserted {
    int32_t first = 0;
    int32_t count = 0;
    int32_t fresh = 0;
    int32_t committed = 0;
  };
  // Puts committed full blocks into the tree and moves the lock there. Blocks that the tree already
  // had are swapped for the tree's, and the sequence's own freed. O(1) while no further block is
  // full. REQUIRES: keeps_units.
  Inserted Insert(SequenceId id);

  struct Released {
    int32_t committed = 0;
    int32_t blocks = 0;
  };
  // Ends a sequence. With `forgets`, what of its prefix no other sequence uses leaves the tree.
  Released Release(SequenceId id, bool forgets);

  bool empty() const { return tables_.empty(); }
  SequenceId first() const { return tables_.begin()->first; }  // any; REQUIRES: not empty
  absl::flat_hash_set<SequenceId> sequences() const;
  bool Contains(SequenceId id) const { return tables_.contains(id); }
  // Valid until the next call.
  std::span<const BlockId> Table(SequenceId id) const { return Get(id).blocks; }
  int32_t committed(SequenceId id) const { return Get(id).committed; }
  int32_t matched(SequenceId id) const { return Get(id).matched; }  // tokens found at Begin
  int32_t shared_blocks(SequenceId id) const { return Get(id).shared_blocks; }
  int32_t capacity(SequenceId id) const {
    return static_cast<int32_t>(Get(id).blocks.size()) * block_size_;
  }
  struct Slots {
    int64_t reserved = 0;
    int64_t committed = 0;
  };
  Slots CountSlots() const;  // of all sequences

  // Recounts the invariants. `shares_full_blocks`: whether forks share full blocks through the tree
  // alone. O(blocks).
  absl::Status CheckConservation(bool shares_full_blocks) const;

 private:
  struct SequenceTable {
    int32_t matched = 0;
    int32_t committed = 0;
    int32_t shared_blocks = 0;  // leading blocks that are the tree's, under `lock`
    std::vector<BlockId> blocks;
    std::vector<CacheUnit> private_units;  // committed ones behind the shared blocks
    RadixLock lock;
  };
  int32_t BlocksFor(int32_t tokens) const {
    return static_cast<int32_t>((int64_t{tokens} + block_size_ - 1) / block_size_);
  }
  SequenceTable& Get(SequenceId id);
  const SequenceTable& Get(SequenceId id) const;
  void Add(SequenceId id, SequenceTable table);
  // Whether the next write of this sequence hits a part-full block that another sequence holds.
  bool WritesSharedBlock(const SequenceTable& table) const {
    if (table.committed % block_size_ == 0) return false;
    const BlockId tail = table.blocks[table.committed / block_size_];
    return cache_.blocks().holds(tail, BlockHolder::kSequence) > 1;
  }
  absl::Status CheckSequence(SequenceId id, const SequenceTable& table,
                             bool shares_full_blocks) const;

  const int32_t block_size_;
  const bool keeps_units_;
  PrefixCache& cache_;
  absl::flat_hash_map<SequenceId, SequenceTable> tables_;
};

}  // namespace baton
