// The runs of 16 units (cache_key.h) that a prefix tree has published as KV events, with their
// hashes.
//
// A run is published as stored when its last block is cached, and as removed when its first block
// is removed. Each run is hashed once, chained to the hash before it. The hash is stored under the
// id of the block in which the run ends. The caller knows where on a path a block lies; this class
// knows no nodes.
//
// Thread safety: used by the engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "cache/block_units.h"
#include "cache/cache_key.h"
#include "cache/index/kv_event_batcher.h"
#include "common/strong_int.h"

namespace baton {

class PublishedRuns {
 public:
  // `blocks` is the number of block ids in the pool. REQUIRES: `units` and `events` outlive this
  // object; block_size is a power of two.
  PublishedRuns(int32_t block_size, int32_t blocks, const BlockUnits* units,
                KvEventBatcher* events);

  int32_t blocks_per_run() const { return blocks_per_run_; }  // 1 if a block has at least 16 units
  // Returns true if a run ends in block number `place` of a path.
  bool EndsRun(int32_t place) const { return (place + 1) % blocks_per_run_ == 0; }

  // Publishes the runs that end in run.back(), which is now cached. `run` holds the blocks of the
  // first such run. `before` is the block in which the run before it ends. At the beginning of a
  // path `before` is kNoBlock, and the hash chain begins with `root`. REQUIRES: EndsRun; the runs
  // before were published.
  void Stored(std::span<const BlockId> run, BlockId before, const Hash128& root);
  // Publishes that the runs which end in `last` are removed. REQUIRES: they were published, and all
  // blocks after `last` are removed.
  void Removed(BlockId last);
  // Publishes that everything is removed.
  void Cleared();
  // Writes the runs that end in `last` to `events`, as Stored did.
  void Repeat(BlockId last, BlockId before, KvEventBatcher& events) const;

  // Address of a block's hashes, for prefetching.
  const void* HashesOf(BlockId block) const { return Of(block).data(); }

 private:
  std::span<Hash128> Of(BlockId block) const {
    return {&hashes_[static_cast<size_t>(block.value()) * runs_per_block_],
            static_cast<size_t>(runs_per_block_)};
  }
  std::array<CacheUnit, kUnitsPerHash> Units(std::span<const BlockId> run, int32_t number) const;
  bool Hold(const Hash128& run, bool is_last);   // true if the run is new
  bool LetGo(const Hash128& run, bool is_last);  // true if this was the last block with the run

  const int32_t block_size_;
  const int32_t runs_per_block_;  // runs that end in one block; 1 if blocks are shorter than runs
  const int32_t blocks_per_run_;
  const BlockUnits* const units_;
  KvEventBatcher* const events_;
  std::unique_ptr<Hash128[]> hashes_;
  // Blocks longer than a run may begin with the same run and differ later. So this counts, for each
  // run that is not the last of its block, the blocks that hold it.
  absl::flat_hash_map<Hash128, int32_t> holders_;
};

}  // namespace baton
