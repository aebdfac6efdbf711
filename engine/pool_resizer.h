// Grows and shrinks a worker's KV pool while it serves. It changes the cache's accounting and the
// memory behind it in the right order.
//
// Invariants:
//  1. Every block that the cache may hand out, or that a sequence, cached prefix, transfer or step
//     uses, has memory. On a GPU, a kernel that used another block would be a fault.
//  2. Only the engine thread discards memory, and only that of blocks that rule 1 does not name.
//
// A resize has two parts, because populating memory may take seconds: Prepare on the caller's
// thread, while steps continue, then Resize on the engine thread. Several resizes may overlap, and
// blocks retire in between. So Resize populates memory that is missing before it hands out a
// block. Usually nothing is missing: while a growth is under way, nothing below its target is
// discarded (docs/decisions/0022-memory-of-a-pool.md).
//
// Thread safety: engine thread only, between steps; Prepare may run on any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>

#include "absl/status/status.h"
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

  // Populates the memory that `blocks` blocks lack. They are blocks of group 0, like all sizes
  // here; the other groups follow (kv_pool_division.h). Afterwards call Resize with the same size,
  // or Abandon if this failed. ResourceExhausted, with both figures: the device has less memory.
  absl::Status Prepare(int32_t blocks);
  // Implements Engine::Resize. It may be called without Prepare.
  absl::StatusOr<PoolSize> Resize(WorkerCore& core, int32_t blocks);
  // Ends a resize without a change, and returns the memory that Prepare populated for it.
  void Abandon(int32_t blocks);
  // Returns the memory of blocks that have retired since the last call. Call it when holds may have
  // ended. It is cheap if no block beyond the pool's end was released.
  void GiveBackRetired();
  PoolSize Size() const;

 private:
  // Populates, then moves the limits of the cache.
  absl::Status MoveLimit(WorkerCore& core, int32_t blocks);
  // The resize to `blocks` is over: returns all memory that is not used.
  void End(int32_t blocks);
  void GiveBack(int32_t group);

  ResizablePool* const pool_;
  KvCacheManager* const cache_;
  BlockCounts retiring_;  // retiring blocks at the last GiveBackRetired
  std::mutex mutex_;
  std::multiset<int32_t> targets_;  // of prepared resizes that have not ended; guarded by mutex_
};

}  // namespace baton
