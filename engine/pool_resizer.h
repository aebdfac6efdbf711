// Grows and shrinks a worker's KV pool while it serves: the cache's accounting and the memory
// behind it, in the right order.
//
// Invariant: memory goes back only where nobody holds a block: no sequence, no cached prefix, no
// transfer.
//
// Thread safety: belongs to the engine thread, between steps, but for Prepare.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "cache/block_counts.h"
#include "cache/kv_cache_manager.h"
#include "engine/pool_size.h"
#include "engine/resizable_pool.h"
#include "engine/worker_core.h"

namespace baton {

class PoolResizer {
 public:
  // Both must outlive this.
  PoolResizer(ResizablePool* pool, KvCacheManager* cache) : pool_(pool), cache_(cache) {}

  // Has memory made for a pool of `limit` blocks (of group 0, as all sizes here; the others follow,
  // kv_pool_division.h) that will have `blocks`, which for shared memory
  // may take seconds: so that steps go on meanwhile, whoever asks for more does this first, on a
  // thread of its own. (Memory that is discarded in between comes back as it is used.)
  // ResourceExhausted, with both figures: the host has less.
  absl::Status Prepare(int32_t limit, int32_t blocks) const;
  // Engine::Resize.
  absl::StatusOr<PoolSize> Resize(WorkerCore& core, int32_t blocks);
  // Gives back what has retired since the last call. To be called when holds may have ended; costs
  // nothing when none behind the end of the pool has.
  void GiveBackRetired();
  PoolSize Size() const;

 private:
  ResizablePool* const pool_;
  KvCacheManager* const cache_;
  BlockCounts retiring_;  // when memory was last given back
};

}  // namespace baton
