// Index of the cached prefixes of all workers in the fleet. Input: the KV events of all workers.
// Output: for a sequence of chained hashes, the number of leading units that each worker holds in
// each tier.
//
// A block is identified by its 128-bit hash, which covers everything before it (cache_key.h). The
// reference model is one set of hashes for each (worker, tier). A worker's units are those before
// the first hash that its set lacks. So a gap ends a prefix. When the gap is stored again, the
// blocks after it count again. Parents are hints for the memory layout and never change an answer.
//
// The speed has these reasons (block_runs.h, block_table.h, run_holders.h):
// - Blocks that are stored together are adjacent in memory. A match does one table lookup for each
//   run, and compares the rest in contiguous memory.
// - A block is found by its own hash, so there is no tree to descend.
// - All hashes of an event are known, so the table's cache lines are prefetched and the misses
//   overlap.
//
// Invariants:
//  1. After every event Match gives the reference model's answer, except for refused blocks.
//  2. blocks() <= max_blocks. Further blocks are refused and counted. Then an answer may be too
//     small, but never too large. Workers' pools are bounded, so choose max_blocks for their sum.
//  3. A forgotten worker is in no answer from that moment on. Its memory is released step by step
//     (each event sweeps a little), at the latest by Sweep().
//
// Sources of ideas: run compression, coverage sets with partial holders, seqlocks and prefetching
// are as in SMG's ChainIndex. SMG's and Dynamo's positional indexers jump over runs too. They trust
// the hash at the landing position, which is inexact if a worker has a gap. This index compares
// every hash instead. The table's overflow counts are from F14.
//
// Thread safety: any thread may call Match and MatchWorkers at any time, without locks. They never
// delay the writer. They wait for it only during single changes of the runs that they read. Only
// one thread, the writer, may call the other functions.
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
  size_t expected_blocks = 0;           // memory for this many blocks is allocated at the start
  KeySeeds key_seeds;
};

// A (worker, tier) that holds at least the first unit.
struct HeldPrefix {
  IndexedWorker worker;
  CacheTier tier = CacheTier::kDevice;
  int32_t units = 0;  // leading hashes held, of kUnitsPerHash cache units each

  bool operator==(const HeldPrefix&) const = default;
};

// A worker and one of its holder numbers.
struct NamedHolder {
  IndexedWorker worker;
  HolderId holder = 0;
};

// The part of an answer that a large fleet needs.
struct SomeHolders {
  std::vector<HeldPrefix> prefixes;  // sorted as by MatchWorkers
  // The different numbers of units in the whole answer, rising.
  std::vector<int32_t> different_units;
};

class GlobalIndex {
 public:
  explicit GlobalIndex(const GlobalIndexOptions& options);

  // ---- any thread ----
  // The answer by holder number. It does not allocate after `match` has been used for a while.
  void Match(std::span<const Hash128> hashes, PrefixMatch& match) const;
  // The answer by worker, sorted by most units, then by worker and tier.
  std::vector<HeldPrefix> MatchWorkers(std::span<const Hash128> hashes) const;
  std::vector<HeldPrefix> MatchWorkers(std::span<const Hash128> hashes, PrefixMatch& match) const;

  // The `most` holders with the most units, and those of `also` that hold at least the first unit.
  // Of holders with equal units, `turn` selects which come first. The cost does not depend on the
  // number of holders, except for one bit of each. A number in `also` that belongs to another
  // worker by now is ignored.
  SomeHolders MatchSome(std::span<const Hash128> hashes, size_t most, uint64_t turn,
                        std::span<const NamedHolder> also) const;

  // Prefetches for hashes that will soon be passed to Match, Stored or Removed.
  void PrefetchTable(std::span<const Hash128> hashes) const;

  // ---- the writer ----
  // The worker now holds these hashes. Each follows the one before it, and the first follows
  // `parent`.
  void Stored(IndexedWorker worker, CacheTier tier, const std::optional<Hash128>& parent,
              std::span<const Hash128> hashes);
  // The worker no longer holds these hashes. Ignores hashes that it did not hold.
  void Removed(IndexedWorker worker, CacheTier tier, std::span<const Hash128> hashes);
  // The worker holds nothing any more in any tier: it cleared its caches, or it is gone. O(1).
  void Cleared(IndexedWorker worker);
  // Releases the memory of all forgotten workers at once. O(blocks).
  void Sweep();

  // The holder number of a (worker, tier) in answers of Match. nullopt while it holds nothing. It
  // differs after Cleared.
  std::optional<HolderId> Holder(IndexedWorker worker, CacheTier tier) const {
    return holders_.Find(worker, tier);
  }

  uint64_t events() const { return events_.load(std::memory_order_relaxed) / 2; }
  // Units that the worker holds, in all tiers.
  size_t units(IndexedWorker worker) const;
  size_t memberships() const { return memberships_; }  // number of (block, worker, tier) triples
  // Distinct blocks, including those not yet swept.
  size_t blocks() const { return runs_.blocks(); }
  uint64_t refused() const { return refused_; }   // blocks refused so far for lack of memory
  size_t bytes() const { return runs_.bytes(); }  // memory in use, including free chunks
  size_t free_bytes() const { return runs_.store().free_bytes(); }

 private:
  class Event;

  // Prefetches the runs of these hashes. Call it after their table lines were prefetched.
  void PrefetchRuns(std::span<const Hash128> hashes) const;
  bool TryMatch(std::span<const Hash128> hashes, PrefixMatch& match) const;
  // Searches up to `chunks` chunks for retired holders.
  void SweepSome(int chunks);
  void Count(HolderId holder, int64_t added);

  HolderTable holders_;
  BlockRuns runs_;
  std::atomic<uint64_t> events_{0};  // twice the number of events; odd while one is applied
  std::vector<uint32_t> held_;       // memberships of each holder
  size_t memberships_ = 0;
  uint64_t refused_ = 0;
  std::optional<uint32_t> sweep_line_;  // position of the current sweep; nullopt if none
  size_t sweep_count_ = 0;              // retired holders when the sweep began
};

}  // namespace baton
