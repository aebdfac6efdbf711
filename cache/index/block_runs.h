// Stores every block that the index knows exactly once: its hash in a run, its place in the table,
// and its holders beside the run.
//
// Blocks that are stored together become one run. A run grows while its memory chunk has room. A
// block is found by its own hash, so a chain of blocks may continue in any run. A run has no
// children, and is not split where chains part. A block that loses its last holder leaves a gap. A
// run is split in two cases only: more than half of it is gaps, or its holders end in too many
// places.
//
// Invariants:
//  1. The table has a hash exactly when one run has it below its length, at the place that the
//     table names. No other run has it.
//  2. After Settle a run ends with a held block, and at least half of its blocks are held or it has
//     many holders. A run without holders is free.
//  3. A holder is retired when the index forgets it. A retired holder stays at most in the chunks
//     where it was: blocks that move to another run do not take it along. So one pass of
//     RemoveRetired over all chunks, in any order, removes every holder that was retired when the
//     pass began.
//
// Thread safety: one writer. Any thread may call the const functions marked "any thread".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "cache/cache_key.h"
#include "cache/index/block_table.h"
#include "cache/index/run_holders.h"
#include "cache/index/run_store.h"

namespace baton {

// Maps a 128-bit hash to 64 bits: both halves of (low ^ first) * (high ^ second), folded as in
// wyhash. The seeds must be random and secret. An attacker may choose prompts, and a hostile worker
// may choose hashes. Without the seeds, neither can make the table's buckets uneven. (low * first +
// high * second would be weaker: for hashes that are multiples of 2^(64-k) it makes only 2^k keys,
// for all seeds.)
struct KeySeeds {
  uint64_t first = 0x9e3779b97f4a7c15;
  uint64_t second = 0xc2b2ae3d27d4eb4f;

  uint64_t BitsOf(const Hash128& hash) const {
    __extension__ using Product = unsigned __int128;
    const Product product = static_cast<Product>(hash.low ^ first) * (hash.high ^ second);
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  BlockTable::Key KeyOf(const Hash128& hash) const { return BlockTable::Key(BitsOf(hash)); }
};

class BlockRuns {
 public:
  using IsRetired = std::function<bool(HolderId)>;
  // REQUIRES: 1 <= max_blocks <= 2^27, expected_blocks <= max_blocks.
  BlockRuns(size_t max_blocks, size_t expected_blocks, KeySeeds key_seeds, IsRetired is_retired);

  // ---- any thread ----
  const BlockTable& table() const { return table_; }
  const RunStore& store() const { return store_; }
  BlockTable::Key KeyOf(const Hash128& hash) const { return key_seeds_.KeyOf(hash); }
  struct Found {
    BlockLocation at;
    RunHead head;  // header of the run at that time
  };
  std::optional<Found> Find(const BlockTable::View& view, const Hash128& hash) const;
  // Number of leading `hashes` that the run has from `found.at` on. REQUIRES: it has the first one.
  uint32_t Common(const Found& found, std::span<const Hash128> hashes) const;

  // ---- the writer ----
  std::optional<Found> Find(const Hash128& hash) const { return Find(table_.view(), hash); }
  void Prefetch(const Hash128& hash) const { BlockTable::Prefetch(table_.view(), KeyOf(hash)); }
  // Probable place of a block. It reads only the table, not the run. The result may be the place of
  // another block (one in 10^5 with evenly distributed hashes), or a place without a block.
  std::optional<BlockLocation> Guess(const Hash128& hash) const;

  // Stores new leading blocks of `hashes`, held by `holder`. `after` is a hint: the probable place
  // of the block before them. Returns how many it stored. That is at least one, unless memory or
  // max_blocks is used up. REQUIRES: the first hash is not known.
  uint32_t AddNew(HolderId holder, const std::optional<BlockLocation>& after,
                  std::span<const Hash128> hashes);
  // Adds or removes a holder of known blocks, as in RunHolders. May move blocks.
  uint32_t AddHolder(uint32_t line, HolderId holder, uint32_t begin, uint32_t end,
                     uint64_t* refused);
  uint32_t RemoveHolder(uint32_t line, HolderId holder, uint32_t begin, uint32_t end,
                        uint64_t* refused);
  // Removes every retired holder from a chunk, if the chunk is a run.
  void RemoveRetired(uint32_t line);

  size_t blocks() const { return table_.entries(); }
  size_t bytes() const { return table_.bytes() + store_.bytes(); }

 private:
  bool Holds(const BlockLocation& at, const Hash128& hash, RunHead* head) const;
  // Returns true if the hash was known before, or was written earlier by the same Fill, which has
  // reached `filled`.
  bool IsKnown(const Hash128& hash, const BlockLocation& filled) const;
  // Writes hashes to a run from position `first` on until one is not new. Returns how many it
  // wrote.
  uint32_t Fill(uint32_t line, uint32_t first, std::span<const Hash128> hashes);
  uint32_t Append(HolderId holder, uint32_t line, std::span<const Hash128> hashes);
  // Moves the blocks of an unpublished run to a smaller chunk that fits. Returns the chunk's line.
  uint32_t Shrink(uint32_t line, uint32_t blocks, uint32_t wanted);
  void EraseFromTable(uint32_t line, uint32_t begin, uint32_t end);
  void Settle(uint32_t line);
  bool Trim(uint32_t line, uint32_t end);
  void Drop(uint32_t line);
  // Moves the blocks from position `at` on to a new run. Returns nullopt if there is no memory.
  // Both runs lose their retired holders and may end up without holders, so call Settle on both.
  std::optional<uint32_t> Split(uint32_t line, uint32_t at);
  void MoveInTable(uint32_t from, uint32_t from_offset, uint32_t to, uint32_t to_offset,
                   uint32_t count);
  void SplitWhileCrowded(uint32_t line);

  const KeySeeds key_seeds_;
  const IsRetired is_retired_;
  BlockTable table_;
  RunStore store_;
  RunHolders holders_;
};

}  // namespace baton
