// The sequences of the full-attention group: their block tables and their committed tokens.
//
// WindowTables does the same for a sliding window. A table begins with shared blocks, which belong
// to the prefix tree. The sequence matched or inserted them and holds a lock on them. Later blocks
// belong to the sequence alone. After a fork, parent and child share a part-full last block, and
// the first writer gets a copy (BlockCopy).
//
// Invariants:
//  1. shared <= committed <= capacity. Only committed units are inserted, and only in full blocks.
//  2. Shared blocks are in the tree, others are not.
//  3. A block has as many sequence holds as there are tables with it.
//
// Thread safety: used by the engine thread only.
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
  // With `keeps_units`, committed units are stored so that they can be inserted. REQUIRES: `cache`
  // outlives this object.
  FullTables(int32_t block_size, bool keeps_units, PrefixCache* cache)
      : block_size_(block_size), keeps_units_(keeps_units), cache_(*cache) {}
  FullTables(const FullTables&) = delete;
  FullTables& operator=(const FullTables&) = delete;

  // Starts a sequence with the blocks and the lock of a match. REQUIRES: id is new (CHECK).
  void Begin(SequenceId id, RadixMatch match);
  // Starts a sequence with `blocks` blocks of consecutive ids. Returns false and takes nothing if
  // there is no such free run. REQUIRES: id is new (CHECK).
  bool BeginRun(SequenceId id, int32_t blocks);
  // Starts `child` with everything that `parent` has committed, and shares its blocks. REQUIRES:
  // child is new (CHECK). If units are kept, the parent's full blocks must be inserted.
  void Fork(SequenceId parent, SequenceId child);

  // Blocks that a sequence with `committed` tokens lacks for a reservation. With `copies_tail`, one
  // of them is for the copy of a shared last block.
  struct Missing {
    int32_t blocks = 0;
    int32_t committed = 0;
    bool copies_tail = false;
  };
  // Computes what `tokens` slots in total need. Called for every row of every step.
  Missing MissingFor(SequenceId id, int32_t tokens) const {
    const SequenceTable& table = Get(id);
    const int32_t more = std::max(0, BlocksFor(tokens) - static_cast<int32_t>(table.blocks.size()));
    const bool copies = tokens > table.committed && WritesSharedBlock(table);
    return {.blocks = more + (copies ? 1 : 0), .committed = table.committed, .copies_tail = copies};
  }
  // Takes the missing blocks. If the last block is shared, it is exchanged for a new block, and the
  // caller must make the returned copy. REQUIRES: enough blocks are free (CHECK).
  std::optional<BlockCopy> Grow(SequenceId id, Missing missing);
  // The slots from `committed` on now hold KV of `units`. REQUIRES: the slots are reserved (CHECK).
  void Commit(SequenceId id, std::span<const CacheUnit> units);

  // Result of Insert for a sequence with `committed` tokens: `count` table entries from `first` on
  // now belong to the tree. `fresh` of them are new in the tree.
  struct Inserted {
    int32_t first = 0;
    int32_t count = 0;
    int32_t fresh = 0;
    int32_t committed = 0;
  };
  // Inserts committed full blocks into the tree and moves the lock to the end of them. If the tree
  // already has a block with the same units, the table takes the tree's block and the sequence's
  // own is freed. O(1) if no further block is full. REQUIRES: keeps_units.
  Inserted Insert(SequenceId id);

  // True if Insert would take the tree's block in place of the next full block of the sequence. The
  // tree may have it where only running sequences find it, because its namespace was cleared.
  bool NextIsInTree(SequenceId id) const;

  struct Released {
    int32_t committed = 0;
    int32_t blocks = 0;
  };
  // Ends a sequence. With `forgets`, the part of its prefix that no other sequence uses leaves the
  // tree.
  Released Release(SequenceId id, bool forgets);

  bool empty() const { return tables_.empty(); }
  SequenceId first() const { return tables_.begin()->first; }  // any sequence; REQUIRES: not empty
  absl::flat_hash_set<SequenceId> sequences() const;
  bool Contains(SequenceId id) const { return tables_.contains(id); }
  // Valid until the next call that changes this object.
  std::span<const BlockId> Table(SequenceId id) const { return Get(id).blocks; }
  int32_t committed(SequenceId id) const { return Get(id).committed; }
  int32_t matched(SequenceId id) const { return Get(id).matched; }  // tokens matched at Begin
  int32_t shared_blocks(SequenceId id) const { return Get(id).shared_blocks; }
  int32_t capacity(SequenceId id) const {
    return static_cast<int32_t>(Get(id).blocks.size()) * block_size_;
  }
  struct Slots {
    int64_t reserved = 0;
    int64_t committed = 0;
  };
  Slots CountSlots() const;  // of all sequences

  // Recounts the invariants. With `shares_full_blocks`, forks share full blocks only through the
  // tree. O(blocks).
  absl::Status CheckConservation(bool shares_full_blocks) const;

 private:
  struct SequenceTable {
    int32_t matched = 0;
    int32_t committed = 0;
    int32_t shared_blocks = 0;  // leading blocks that belong to the tree, under `lock`
    std::vector<BlockId> blocks;
    std::vector<CacheUnit> private_units;  // committed units after the shared blocks
    RadixLock lock;
  };
  int32_t BlocksFor(int32_t tokens) const {
    return static_cast<int32_t>((int64_t{tokens} + block_size_ - 1) / block_size_);
  }
  SequenceTable& Get(SequenceId id);
  const SequenceTable& Get(SequenceId id) const;
  void Add(SequenceId id, SequenceTable table);
  // Returns true if the next write of this sequence hits a part-full block that another one holds.
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
