// Status of one KV group of a worker: its kind, the size of its pool, and the use of its blocks.
//
// Thread safety: plain data; KvGroupStatuses on the engine thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/kv_cache_manager.h"
#include "cache/kv_pool_layout.h"
#include "engine/pool_size.h"

namespace baton {

struct KvGroupStatus {
  KvGroupKind kind = KvGroupKind::kFullAttention;
  int32_t window = 0;  // slots; 0: full attention
  int32_t layers = 0;
  int64_t bytes_per_block = 0;
  PoolSize size = {};  // `before` equals `limit`
  BlockAllocator::Accounting blocks = {};
  int32_t evictable = 0;       // cached and otherwise unused
  int64_t evicted_blocks = 0;  // since the start
};

// Returns the status of every group, group 0 first. `stats`: the cache's current statistics.
std::vector<KvGroupStatus> KvGroupStatuses(const KvPoolLayout& layout, const KvCacheManager& cache,
                                           const KvCacheStats& stats);

}  // namespace baton
