// Turns the copies of blocks that forks need (copy on write) into lists of runs of bytes, one list
// for each op (Ops::CopyRuns).
//
// The copies have an order, and a block may occur in several of them: it may be freed and handed
// out again between two copies. The runs of one op have no order. So a copy that reads or writes a
// block which an earlier copy of the list writes, or writes one that an earlier copy reads, begins
// the next list.
//
// Thread safety: a pure function.
#pragma once

#include <span>
#include <vector>

#include "cache/block_copy.h"
#include "cache/kv_pool_layout.h"
#include "kernels/byte_run.h"
#include "kernels/communicator.h"

namespace baton {

// Returns the runs of the KV heads of `rank`. Offsets count from the pool's beginning. The lists
// must be copied one after the other. REQUIRES: the blocks lie in the pool; 0 <= tokens <= the
// block size; `from` differs from `to`.
std::vector<std::vector<ByteRun>> BlockCopyRuns(std::span<const BlockCopy> copies,
                                                const KvPoolLayout& layout, TensorRank rank = {});

}  // namespace baton
