// The KV heads of one rank: in a pool that holds the heads of all ranks, or in a pool of its own.
//
// A token's row has the values of head after head, then in a pool with scales those of head after
// head. So the heads of a rank are contiguous in each row, and their scales too.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/block_copy.h"
#include "cache/kv_cache_spec.h"
#include "cache/kv_pool_layout.h"
#include "kernels/byte_run.h"
#include "kernels/communicator.h"
#include "kernels/paged_kv.h"

namespace baton {

struct KvHeads {
  int32_t first = 0;
  int32_t count = 0;
};

// Returns the heads of `rank` in a group. REQUIRES: the degree divides the group's KV heads.
inline KvHeads HeadsOf(TensorRank rank, const KvLayout& group) {
  const int32_t count = group.group().kv_heads / rank.degree;
  return {.first = rank.rank * count, .count = count};
}

// Returns the spec of a rank's own pool. REQUIRES: `ranks` divides the KV heads of every group.
KvCacheSpec OfOneRank(KvCacheSpec model, int32_t ranks);

// Returns the rank whose heads a pool of `layout` has for `rank`: {0, 1}, that is all of them, if
// the pool is the rank's own one. `kv_heads`: of the whole model.
TensorRank RankInPool(TensorRank rank, const KvPoolLayout& layout, int32_t kv_heads);

// Returns the same layer from head `first` on.
KvLayerView FromHead(KvLayerView view, int32_t first);

// Appends the runs of these heads' KV from one block to another, in all layers of the group: the
// leading copy.tokens slots. Offsets count from the pool's beginning.
void AppendKvHeadRuns(const KvPoolLayout& layout, const BlockCopy& copy, KvHeads heads,
                      std::vector<ByteRun>& runs);

}  // namespace baton
