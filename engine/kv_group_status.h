// What a worker tells of each KV group: what it is, how large its pool is, and who has its blocks.
//
// Thread safety: plain data; KvGroupStatuses belongs to the engine thread.
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
  PoolSize size = {};  // `before` is as `limit`
  BlockAllocator::Accounting blocks = {};
  int32_t evictable = 0;       // cached and in no other use
  int64_t evicted_blocks = 0;  // ever
};

// Of group 0, 1, ...; `stats` are the cache's of now.
std::vector<KvGroupStatus> KvGroupStatuses(const KvPoolLayout& layout, const KvCacheManager& cache,
                                           const KvCacheStats& stats);

}  // namespace baton
