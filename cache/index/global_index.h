// Which worker has cached which prefix, in the whole fleet: the events of all workers in, and for a
// sequence of chained hashes the number of leading units that every worker holds, in every tier.
//
// A block is known by its 128-bit hash, which covers all before it (cache_key.h). The answer is
// that of a literal model in which every (worker, tier) is a set of hashes: a worker's units are
// those before the first hash that its set lacks. A gap ends a prefix, and once it is stored again
// the blocks behind it count again. Parents are hints for the layout and never change an answer.
//
// How it is fast (block_runs.h, block_table.h, run_holders.h): blocks stored together lie together,
// so a match takes a table look-up for each run and compares what follows in contiguous memory; a
// block's own hash finds it, so there is no tree to descend; all hashes of an event are known, so
// the table's cache lines are fetched ahead and the misses overlap.
//
// Invariants:
//  1. After every event Match gives the literal model's answer, but for what was refused.
//  2. blocks() <= max_blocks. What goes beyond is refused and counted: an answer may then be too
//     small, never too large. Workers' pools are bounded, so choose max_blocks for their sum.
//  3. A forgotten worker is in no answer from that moment on. Its memory is given back by and by
//     (each event sweeps a little), at the latest by Sweep().
//
// Sources of ideas: run compression, coverage sets with partial holders, seqlocks and prefetching
// as in SMG's ChainIndex; jumping over runs instead of asking block by block as in SMG's and
// Dynamo's positional indexers, but comparing every hash, since a jump that trusts the landing is
// not exact where somebody has a gap; F14's overflow counts for the table.
//
// Thread safety: Match and MatchWorkers on any thread, at any time, without locks; they never delay
// the writer, and wait for it only during single changes of the runs on their way. Everything else
// belongs to one thread, the writer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache/cache_key.h"
#include "cache/index/block_runs.h"
#include "cache/index/holder_table.h"
#include "cache/index/indexed_worker.h"
#include "cache/index/prefix_match.h"

namespace baton {

struct GlobalIndexOptions {
  size_t max_blocks = size_t{1} << 24;  // distinct hashes, 1 to 2^27
  size_t expected_blocks = 0;           // memory for so many is ready from the beginning
  KeySeeds key_seeds;
};

// A (worker, tier) that holds at least the first unit.
struct HeldPrefix {
  IndexedWorker worker;
  CacheTier tier = CacheTier::kDevice;
  int32_t units = 0;  // leading hashes held, of kUnitsPerHash cache units each

  bool operator==(const HeldPrefix&) const = default;
};

class GlobalIndex {
 public:
  explicit GlobalIndex(const GlobalIndexOptions& options);

  // ---- any thread ----
  // The answer by holder numbers, without allocation once `match` has been used for a while.
  void Match(std::span<const Hash128> hashes, PrefixMatch& match) const;
  // The answer by workers, most units first, then by worker and tier.
  std::vector<HeldPrefix> MatchWorkers(std::span<const Hash128> hashes) const;
  std::vector<HeldPrefix> MatchWorkers(std::span<const Hash128> hashes, PrefixMatch& match) const;

  // A hint for hashes that Match, Stored or Removed will be called with soon.
  void PrefetchTable(std::span<const Hash128> hashes) const;

  // ---- the writer ----
  // The worker holds these now, each after the one before it and the first after `parent`.
  void Stored(IndexedWorker worker, CacheTier tier, const std::optional<Hash128>& parent,
              std::span<const Hash128> hashes);
  // The worker holds these no more; what it did not hold is passed over.
  void Removed(IndexedWorker worker, CacheTier tier, std::span<const Hash128> hashes);
  // The worker holds nothing any more, in any tier: it emptied its caches, or it is gone. O(1).
  void Cleared(IndexedWorker worker);
  // Gives back what forgotten workers left, all at once. O(blocks).
  void Sweep();

  // The number under which Match speaks of a (worker, tier); nothing while it holds nothing.
  // Another one after Cleared.
  std::optional<HolderId> Holder(IndexedWorker worker, CacheTier tier) const {
    return holders_.Find(worker, tier);
  }

  uint64_t events() const { return events_.load(std::memory_order_relaxed) / 2; }
  // That the worker holds, in all tiers.
  size_t units(IndexedWorker worker) const;
  size_t memberships() const { return memberships_; }  // (block, worker, tier)s
  size_t blocks() const { return runs_.blocks(); }     // distinct, with those not yet swept
  uint64_t refused() const { return refused_; }        // blocks that found no room, so far
  size_t bytes() const { return runs_.bytes(); }       // of memory in use, free chunks included
  size_t free_bytes() const { return runs_.store().free_bytes(); }

 private:
  class Event;

  // Fetches the runs that these are in, once their table lines are on the way.
  void PrefetchRuns(std::span<const Hash128> hashes) const;
  bool TryMatch(std::span<const Hash128> hashes, PrefixMatch& match) const;
  // Looks at up to `chunks` chunks for retired holders.
  void SweepSome(int chunks);
  void Count(HolderId holder, int64_t added);

  HolderTable holders_;
  BlockRuns runs_;
  std::atomic<uint64_t> events_{0};  // twice their number; odd while one is being taken in
  std::vector<uint32_t> held_;       // memberships of each holder
  size_t memberships_ = 0;
  uint64_t refused_ = 0;
  std::optional<uint32_t> sweep_line_;  // where a sweep is; none when there is nothing to sweep
  size_t sweep_count_ = 0;              // retired holders when it began
};

}  // namespace baton
