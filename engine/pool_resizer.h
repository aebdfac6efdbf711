// Grows and shrinks a worker's KV pool while it serves. It changes the cache's accounting and the
// memory behind it in the right order.
//
// Invariant: a block's memory is returned only when no sequence, cached prefix, transfer or step
// uses the block.
//
// Thread safety: engine thread only, between steps; Prepare may run on any thread.
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

  // Populates memory for growth from `limit` to `blocks` blocks. Both count blocks of group 0, like
  // all sizes here; the other groups follow (kv_pool_division.h). For shared memory this may take
  // seconds. So the caller of Engine::Resize does it on its own thread first, while steps continue.
  // (If the memory is discarded in between, it comes back on first use.) ResourceExhausted, with
  // both figures: the host has less memory.
  absl::Status Prepare(int32_t limit, int32_t blocks) const;
  // Implements Engine::Resize.
  absl::StatusOr<PoolSize> Resize(WorkerCore& core, int32_t blocks);
  // Returns the memory of blocks that have retired since the last call. Call it when holds may have
  // ended. It is cheap if no block beyond the pool's end was released.
  void GiveBackRetired();
  PoolSize Size() const;

 private:
  ResizablePool* const pool_;
  KvCacheManager* const cache_;
  BlockCounts retiring_;  // retiring blocks at the last GiveBackRetired
};

}  // namespace baton
