// The KV heads of one rank in a pool that holds the heads of all ranks.
//
// A token's row has the values of head after head, then in an int8 pool the scales of head after
// head. So the heads of a rank are contiguous in each row, and their scales too.
//
// Thread safety: pure functions; CopyKvHeads belongs to the thread of its stream.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cache/block_copy.h"
#include "cache/kv_pool_layout.h"
#include "kernels/communicator.h"
#include "kernels/device.h"
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

// Returns the same layer from head `first` on.
KvLayerView FromHead(KvLayerView view, int32_t first);

// Enqueues copies of these heads' KV from one block to another, in all layers of the group: the
// leading copy.tokens slots.
void CopyKvHeads(const KvPoolLayout& layout, std::byte* pool, const BlockCopy& copy, KvHeads heads,
                 Stream& stream);

}  // namespace baton
