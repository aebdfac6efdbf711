// Every block that the index knows, once: its hash in a run, its place in the table, its holders
// with the run.
//
// Blocks that are stored together become one run, and a run is appended to while its chunk has
// room. Because a block is found by its own hash, a chain may go on anywhere: a run has no
// children, is not cut where chains part, and keeps a gap where a block lost its last holder. Runs
// are cut in two cases only: more than half of one is gaps, or its holders end in too many places.
//
// Invariants:
//  1. A hash is in the table exactly when it is below the length of exactly one run, at the place
//     that the table says.
//  2. After Settle a run ends with a block that somebody holds, and at least half of its blocks are
//     held or shared by many; a run that nobody holds is free.
//  3. A retired holder (one that the index has forgotten) stays at most where it was when it was
//     retired: blocks that move to another run leave it behind. So who has gone through all chunks
//     once, in any order, calling RemoveRetired, has removed all that were retired when it began.
//
// Thread safety: one writer; the const functions named so on any thread.
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

// 64 bits of a 128-bit hash: both halves of (low ^ first) * (high ^ second), folded as in wyhash.
// Random numbers, which an attacker who chooses prompts or is a worker and chooses hashes does not
// know, keep the table's buckets even. (low * first + high * second would not: of hashes that are
// multiples of 2^(64-k) it makes 2^k keys, whatever the numbers are.)
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
    RunHead head;  // as it was when the block was there
  };
  std::optional<Found> Find(const BlockTable::View& view, const Hash128& hash) const;
  // How many of `hashes` stand in the run from `at` on. REQUIRES: the first does.
  uint32_t Common(const Found& found, std::span<const Hash128> hashes) const;

  // ---- the writer ----
  std::optional<Found> Find(const Hash128& hash) const { return Find(table_.view(), hash); }
  void Prefetch(const Hash128& hash) const { BlockTable::Prefetch(table_.view(), KeyOf(hash)); }
  // Where a block probably is, by the table alone, which spares the cache lines of its run. May be
  // the place of another block (with evenly distributed hashes one in 10^5), and a place where
  // there is none.
  std::optional<BlockLocation> Guess(const Hash128& hash) const;

  // Takes in leading blocks of `hashes` that are new, held by `holder`; `after` is where the block
  // before them may be: a hint. At least one, unless memory or max_blocks is used up. REQUIRES: the
  // first hash is not known.
  uint32_t AddNew(HolderId holder, const std::optional<BlockLocation>& after,
                  std::span<const Hash128> hashes);
  // Adds and removes holders of known blocks; as RunHolders says. May move blocks.
  uint32_t AddHolder(uint32_t line, HolderId holder, uint32_t begin, uint32_t end,
                     uint64_t* refused);
  uint32_t RemoveHolder(uint32_t line, HolderId holder, uint32_t begin, uint32_t end,
                        uint64_t* refused);
  // Removes every retired holder from a chunk, if that is a run.
  void RemoveRetired(uint32_t line);

  size_t blocks() const { return table_.entries(); }
  size_t bytes() const { return table_.bytes() + store_.bytes(); }

 private:
  bool Holds(const BlockLocation& at, const Hash128& hash, RunHead* head) const;
  // Known before, or written by the very Fill that has come to `filled`: a hash that came twice.
  bool IsKnown(const Hash128& hash, const BlockLocation& filled) const;
  // Writes hashes to a run's positions from `first` on while they are new; how many.
  uint32_t Fill(uint32_t line, uint32_t first, std::span<const Hash128> hashes);
  uint32_t Append(HolderId holder, uint32_t line, std::span<const Hash128> hashes);
  // The same blocks in a chunk that fits; `line` is not published yet.
  uint32_t Shrink(uint32_t line, uint32_t blocks, uint32_t wanted);
  void EraseFromTable(uint32_t line, uint32_t begin, uint32_t end);
  void Settle(uint32_t line);
  bool Trim(uint32_t line, uint32_t end);
  void Drop(uint32_t line);
  // Moves blocks from `at` on into a run of their own; nothing when there is no memory. Both runs
  // lose their retired holders, so either may be held by nobody now: Settle them.
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
