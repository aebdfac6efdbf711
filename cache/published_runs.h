// The runs of 16 units (cache_key.h) that a prefix tree has told of, and their hashes.
//
// A run is stored when the last of its blocks comes, and removed when the first goes. Each is
// hashed once, behind the hash before it, and its hash is kept by the id of the block that it ends
// in. The tree says where on a path a block lies; this class knows nothing of nodes.
//
// Thread safety: belongs to the engine thread.
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
  // REQUIRES: `units` and `events` outlive this; block_size a power of two. `blocks`: the pool's.
  PublishedRuns(int32_t block_size, int32_t blocks, const BlockUnits* units,
                KvEventBatcher* events);

  int32_t blocks_per_run() const { return blocks_per_run_; }  // 1 where blocks are not shorter
  // Whether a run ends in block number `place` of a path.
  bool EndsRun(int32_t place) const { return (place + 1) % blocks_per_run_ == 0; }

  // Tells of the runs that end in run.back(): it has come to be cached. `run` are the blocks of the
  // first such run. `before` is the block in which the run before it ends; at the beginning of a
  // path it is kNoBlock, and the chain begins with `root`. REQUIRES: EndsRun; the runs before were
  // told of.
  void Stored(std::span<const BlockId> run, BlockId before, const Hash128& root);
  // Tells that the runs which end in `last` go. REQUIRES: they were told of; what follows is gone.
  void Removed(BlockId last);
  // Tells that everything is gone.
  void Cleared();
  // Tells `events` of the runs that end in `last`, as Stored did.
  void Repeat(BlockId last, BlockId before, KvEventBatcher& events) const;

  // Where a block's hashes are: memory to ask for ahead of its use.
  const void* HashesOf(BlockId block) const { return Of(block).data(); }

 private:
  std::span<Hash128> Of(BlockId block) const {
    return {&hashes_[static_cast<size_t>(block.value()) * runs_per_block_],
            static_cast<size_t>(runs_per_block_)};
  }
  std::array<CacheUnit, kUnitsPerHash> Units(std::span<const BlockId> run, int32_t number) const;
  bool Hold(const Hash128& run, bool is_last);   // whether it is new
  bool LetGo(const Hash128& run, bool is_last);  // whether it was the last holder

  const int32_t block_size_;
  const int32_t runs_per_block_;  // that end in one; 1 where blocks are shorter than runs
  const int32_t blocks_per_run_;
  const BlockUnits* const units_;
  KvEventBatcher* const events_;
  std::unique_ptr<Hash128[]> hashes_;
  // Blocks longer than a run may begin alike and differ behind: how many hold a run that is not
  // their last.
  absl::flat_hash_map<Hash128, int32_t> holders_;
};

}  // namespace baton
